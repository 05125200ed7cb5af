"""The decision service: decisions over HTTP that are stored before they are answered, and can be proved afterwards."""
