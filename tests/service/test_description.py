"""The OpenAPI description: requests that it allows or forbids, answered by a real server as it says."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from mebandit.service.app.create import create
from tests.service.servers import KEY, Server, begin

with tempfile.TemporaryDirectory() as folder:
    schema = schemathesis.openapi.from_dict(create(str(Path(folder) / "unused.db")).openapi())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def running(server: Server) -> Server:
    with server.client() as client:
        begin(client)
    return server


@schema.parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_requests_are_answered_as_described(case: "schemathesis.Case[Any]", running: Server) -> None:
    if case.method == "PUT" and case.path == "/v1/experiments/{x}":
        return  # each other policy is compiled: see `test_calls.py`
    answer = case.call(base_url=running.address, headers={"Authorization": f"Bearer {KEY}"})
    case.validate_response(answer, checks=CHECKS)
