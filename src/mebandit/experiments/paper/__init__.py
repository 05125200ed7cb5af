"""The paper's tables and figures: each experiment is a list of cells and a way to present what they gave."""
