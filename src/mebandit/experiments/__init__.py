"""Experiments: what to simulate, as data; running it so that nothing is lost; and the page that shows it."""
