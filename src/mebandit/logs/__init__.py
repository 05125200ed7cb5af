"""Stored rounds: reading tables and files of them in checked blocks."""
