"""The API keeps what its own OpenAPI promises, whatever it is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from schemathesis import BaseSchema, Case

from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import publish, this_minute

pytestmark = pytest.mark.services


@pytest.fixture
def described(shop: ShopLake, dsn: str, make_weather_app: Callable[[Callable[[], str | None]], FastAPI]) -> BaseSchema:
    shop.land(["a"], bad=["no"])
    publish(dsn, [("Miami", this_minute(), 80.0)])
    return schemathesis.openapi.from_asgi("/openapi.json", make_weather_app(lambda: dsn), base_url="http://127.0.0.1")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_the_api_keeps_its_promises(case: Case) -> None:
    case.call_and_validate(headers={"Host": "127.0.0.1"})
