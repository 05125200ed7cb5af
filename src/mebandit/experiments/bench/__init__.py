"""What things cost, beside what others take for the same: `mebandit bench`."""
