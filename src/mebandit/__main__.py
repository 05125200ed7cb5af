"""`python -m mebandit`: the command where its script is not on the path."""

from mebandit.cli import main

main()
