"""The receiving server conforms to its OpenAPI schema, checked by schemathesis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from headrace.kafka.client import KafkaServers
from headrace.sources.receiving import receiving_app
from headrace.spec.model.pipeline import Pipeline
from tests.support.topics import make_topic

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is for Python 3.11 and later")

from schemathesis import Case, GenerationMode  # noqa: E402
from schemathesis.core.result import Ok  # noqa: E402

pytestmark = pytest.mark.services


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_receiving_app_conforms_to_its_openapi_schema(weather: Pipeline, broker: str, mode: GenerationMode) -> None:
    make_topic(broker, weather.streams[0].topic, partitions=2)
    app = receiving_app(weather, bootstrap_servers=KafkaServers(broker))
    tried: set[tuple[str, int]] = set()
    for listed in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        assert isinstance(listed, Ok), listed
        operation = listed.ok()
        if mode == GenerationMode.NEGATIVE and operation.path in ("/health", "/ready"):
            continue  # no parameters that could be invalid

        @given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis_settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
        def keeps_to_it(case: Case[Any]) -> None:
            answer = case.call()
            case.validate_response(answer)
            tried.add((case.path, answer.status_code))

        keeps_to_it()
    wanted = {("/log", 200), ("/health", 200), ("/ready", 200)} if mode == GenerationMode.POSITIVE else {("/log", 422)}
    assert wanted <= tried <= wanted | {("/log", 200)}  # a value of the wrong type may be valid as text
