"""A real command erases a person whose events came over Kafka, is killed, and landing continues exactly once."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from headrace.errors import TakenOverError
from tests.operations.erase.people_lake import FILES
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.long]

ANN, BOB = "ann@example.com", "bob@example.com"


def event(email: str, number: int) -> bytes:
    return json.dumps({"id": f"member-{number:04}", "email": email, "name": email[:3], "n": number}).encode()


def test_landing_is_exactly_once_beside_an_erasure(lake: Lake, spark: SparkSession) -> None:
    topics = {name: f"{lake.topic}-{name}" for name in ("members", "orders", "other")}
    text = FILES["pipeline.yml"]
    for name, topic in topics.items():
        text = text.replace(f"topic: club-{name}", f"topic: {topic}")
        make_topic(lake.servers, topic, config={"retention.ms": str(7 * 86_400_000)})
    write_files(
        lake.folder / "pipelines" / "club",
        {name: FILES[name] for name in FILES if "marts" not in name} | {"pipeline.yml": text},
    )
    people_lake = lake.pipeline("club")
    produce(lake.servers, topics["members"], [event(ANN, 1), event(BOB, 2), b"{" + ANN.encode(), b"{bob", event(ANN, 1)])
    lake.land(spark, people_lake)
    stale = lake.lander(people_lake)

    died = lake.start(
        *("erase", "club", "--email", ANN, "--yes"),
        HEADRACE_FAULT="kill-application@raw.members:erased",
    )
    assert died.wait(seconds=120) == -signal.SIGKILL, died.said()
    said = lake.run("erase", "club")
    assert "finishing the erasure" in said
    assert "the person is in none" in said
    assert f"topic {topics['members']}: keeps messages for 7.0 days" in said
    assert ANN not in said

    produce(lake.servers, topics["members"], [event(BOB, 4)])
    with pytest.raises(TakenOverError):
        stale.land_batch(spark.sparkContext)
    lake.land(spark, people_lake)
    assert sorted(row["id"] for row in lake.rows("raw.members")) == ["member-0002", "member-0004"]
    assert [row["original_bytes"] for row in lake.quarantine("club.members")] == [b"{bob"]
    verified = lake.verify(people_lake)[0]
    assert verified.holds, verified
    assert (verified.in_topic, verified.landed, verified.quarantined, verified.erased) == (6, 2, 1, 3)
    files = [path for path in lake.home.rglob("*") if path.is_file()]
    assert [path for path in files if ANN.encode() in path.read_bytes().lower()] == [], "logs and metadata included"
