"""Hostile calls of the public functions, for `scripts/fuzz.py`."""
