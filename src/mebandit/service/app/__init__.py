"""The service over HTTP: calls, their descriptions, errors, roles and limits."""
