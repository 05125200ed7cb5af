"""What every long piece of work needs: workers, files that are whole or absent, progress bars."""
