"""Requests from anywhere: damaged ones, and whatever the OpenAPI description allows."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serve.fuzz_bodies import QUICK, fuzz, pictures
from serve.running import running

CHECKS = [
    *(not_a_server_error, status_code_conformance, content_type_conformance),
    *(response_headers_conformance, response_schema_conformance),
]


def test_damaged_requests(runs):
    """`python tests/serve/fuzz_bodies.py` does a thousand."""
    with running(runs["vit"], runs["segment"], **QUICK) as server:
        port = int(server.url.rpartition(":")[2])
        statuses = fuzz(port, pictures(), ["vit", "segment"], range(80))
        assert {200, 400, 422} <= set(statuses), statuses
        assert server.client.get("/readyz").status_code == 200


def test_the_description_is_kept(server):
    """`schemathesis run URL/openapi.json` does more."""
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    seen = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=8,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case):
            response = case.call()
            seen.add((case.path, response.status_code))
            case.validate_response(response, checks=CHECKS)

        check()
    paths = {path for path, _ in seen}
    assert len(paths) == 9
    assert ("/v1/models/{name}/predict", 422) in seen
