"""What can be said about a world or a log: the paper's bounds and their conditions."""
