"""How many rounds a trial needs."""
