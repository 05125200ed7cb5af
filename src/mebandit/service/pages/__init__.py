"""The dashboard: pages that are made on the server, and work without a script."""
