"""The OpenAPI description: random requests that it allows or forbids, and a random walk beside a plain model of the service."""

import tempfile
from pathlib import Path

import schemathesis

from mebandit.service.app.create import create

FOLDER = tempfile.TemporaryDirectory()
schema = schemathesis.openapi.from_dict(create(str(Path(FOLDER.name) / "unused.db")).openapi())
