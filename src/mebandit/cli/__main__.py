from mebandit.cli import main

main()
