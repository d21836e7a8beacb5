"""The API conforms to its OpenAPI for any request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings

from headrace.serving.web.guard import Lock
from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import publish, this_minute

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is for Python 3.11 and later")

from schemathesis import Case, GenerationMode  # noqa: E402
from schemathesis.core.result import Ok  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

pytestmark = pytest.mark.services

_EXAMPLES = 25


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_api_conforms_to_its_openapi(
    shop: ShopLake, dsn: str, make_weather_app: Callable[..., FastAPI], mode: GenerationMode
) -> None:
    """Send requests that the OpenAPI allows (positive) and that it does not allow (negative)."""
    shop.land(["a"], bad=["no"])
    publish(dsn, [("Miami", this_minute(), 80.0)])
    app = make_weather_app(lambda: dsn, lock=Lock(None, local=False))
    described = schemathesis.openapi.from_asgi("/openapi.json", app)
    asked: set[str] = set()
    for result in described.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # it has no parameter that could be invalid

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=_EXAMPLES,
            derandomize=True,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def keeps(case: Case[Any]) -> None:
            case.call_and_validate(excluded_checks=[positive_data_acceptance])  # not every text is SQL

        keeps()
        asked.add(operation.label)
    assert {"GET /api/weather/latest", "POST /api/query"} <= asked
    assert mode is GenerationMode.NEGATIVE or {"GET /api/weather", "GET /api/tables/{name}", "GET /health"} <= asked
