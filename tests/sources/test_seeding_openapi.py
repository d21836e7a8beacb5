"""The seeder conforms to its OpenAPI schema, checked by schemathesis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from starlette.types import Receive, Scope, Send

from headrace.sources.seeding import seeding_app
from headrace.spec.model.pipeline import Capture, Pipeline, Seeder
from tests.programs.hostile.servers import SEEDER
from tests.support.folders import write_files

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is for Python 3.11 and later")

from schemathesis import Case, GenerationMode  # noqa: E402
from schemathesis.core.result import Ok  # noqa: E402

pytestmark = pytest.mark.services

WANTED = {
    GenerationMode.POSITIVE: {("/seed/full", 200), ("/seed/full", 409), ("/traffic/stop", 200), ("/schema/change", 409)},
    GenerationMode.NEGATIVE: {("/seed/full", 422), ("/traffic/start", 422)},
}


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_seeding_app_conforms_to_its_openapi_schema(database: str, tmp_path: Path, mode: GenerationMode) -> None:
    write_files(tmp_path, {"seeder.py": SEEDER})
    capture = Capture("mine", tmp_path, seeder=Seeder(tmp_path / "seeder.py", 8000))
    seeding = seeding_app(Pipeline("mine", "a test", tmp_path, (), capture=capture), dsn=database)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        others = [header for header in scope.get("headers", ()) if header[0] != b"host"]
        await seeding({**scope, "headers": [*others, (b"host", b"127.0.0.1:8000")]}, receive, send)

    tried: set[tuple[str, int]] = set()
    for listed in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        assert isinstance(listed, Ok), listed
        operation = listed.ok()
        if mode == GenerationMode.NEGATIVE and operation.path not in ("/seed/full", "/traffic/start"):
            continue  # no parameters that could be invalid

        @given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis_settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
        def keeps_to_it(case: Case[Any]) -> None:
            answer = case.call()
            case.validate_response(answer)
            tried.add((case.path, answer.status_code))

        keeps_to_it()
    TestClient(app).post("/traffic/stop")
    assert WANTED[mode] <= tried
