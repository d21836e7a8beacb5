"""The weather pipeline end to end with commands: HTTP, Kafka, the lake and Postgres."""

from __future__ import annotations

import json

import pytest

from headrace.servers.postgres import postgres
from headrace.spec import copy_pipeline
from tests.support.application import find_processes
from tests.support.lake import Lake
from tests.support.waiting import wait_until
from tests.support.weather import published, recompute

pytestmark = [pytest.mark.services, pytest.mark.spark]


def test_demo_of_weather_leaves_no_server_running(lake: Lake) -> None:
    copy_pipeline("weather", target_name="sky", folder=lake.folder)
    output = lake.run("demo", "sky", "--events", "60", "--exit")
    assert "sky's receiver is ready on http://127.0.0.1:" in output
    assert "60 requests are answered by /log" in output
    assert "rows to Postgres table sky" in output
    assert "expectations hold for every row" in output
    wait_until(lambda: not find_processes(lake.home), what="the end of all that it started")
    with postgres(lake.settings(), report=lambda sentence: None) as dsn:
        minutes = published(dsn, "sky")
        assert minutes == recompute(lake, "sky_default.weather")
        assert sum(count for _, _, count in minutes.values()) == 60
        status = json.loads(lake.command("status", "sky", "--json"))
        assert {service["name"]: service["state"] for service in status["services"]} == {
            "kafka": "stopped",
            "postgres": "running",
            "connect": "stopped",
            "registry": "stopped",
            "trino": "stopped",
        }
        (table,) = status["tables"]
        assert (table["late_rows"], table["watermark"] is not None) == (0, True)
        assert "watermark" in lake.command("status", "sky")
    rows = json.loads(
        lake.command("query", "SELECT city, temperature FROM sky_default.weather ORDER BY kafka_offset", "--json")
    )
    assert len({row["city"] for row in rows}) == 10
    assert lake.try_command("receive", "lineage")[0] == 2
