"""A replay killed at any step leaves the lake consistent, and the next one has the same result."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from headrace.build import build as build_module
from headrace.iceberg.ledgers.replay import Window
from headrace.operations.replay import replaying as replaying_module
from headrace.operations.replay.choice import ReplayRequest
from headrace.operations.verify.verify import Verified
from tests.operations.replay.replay_lake import BIG, NAMED, WIDE, ReplayLake, hours, thing
from tests.support.crashing import KilledError, die_in
from tests.support.lake import Lake
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.long]

PLACES = (
    "raw.things:staged",
    "raw.things:replayed",
    "raw.things:settled",
    "replay:landed",
    "staging.latest:staged",
    "staging.latest:committed",
)
RIGHT = [{"n": n, "name": f"name {n}"} for n in range(6)] + [{"n": BIG, "name": "name 6"}]


@pytest.mark.parametrize("place", PLACES)
def test_killed_replay_is_finished_by_the_next_one(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    replay_lake = ReplayLake(lake, spark)
    replay_lake.send([*(thing(number) for number in range(6)), thing(6, n=BIG), b"{broken"])
    replay_lake.land()
    replay_lake.build()
    before = replay_lake.rows("raw.things", "id", "n")
    replay_lake.write({"schemas/thing.sql": WIDE})
    request = ReplayRequest(Window(hours(0), None))
    die_in(monkeypatch, replaying_module, build_module)[:] = [place]
    with pytest.raises(KilledError):
        replay_lake.replay(request)
    if place == "raw.things:staged":
        assert replay_lake.rows("raw.things", "id", "n") == before
        replay_lake.check(landed=6, refused=2)
    replay_lake.lake.lander(replay_lake.pipeline)  # the next landing flushes the replay's settlement
    (verified,) = lake.verify(replay_lake.pipeline)
    assert verified.holds, verified
    assert counted(verified) in ((6, 2), (7, 1))
    replay_lake.build()  # and the next build rebuilds the tables
    done = replay_lake.replay(request)
    assert done.holds
    replay_lake.check(landed=7, refused=1)
    assert replay_lake.rows("raw.things", "n", "name") == sorted(RIGHT, key=lambda row: [str(row["n"]), str(row["name"])])
    assert newest_of(replay_lake) == {"thing-0": 5, "thing-1": BIG, "thing-2": 2, "thing-3": 3, "thing-4": 4}
    assert {row["newest"] for row in replay_lake.rows("marts.looked_up", "id", "newest") if row["id"] == "thing-1"} == {BIG}


def test_killed_replay_command_leaves_a_live_run_intact(lake: Lake, spark: SparkSession) -> None:
    replay_lake = ReplayLake(lake, spark)
    replay_lake.send([*(thing(number) for number in range(20)), thing(20, n=BIG), b"{broken"])
    live = lake.start("run", "shelf")
    live.wait_to_say("marts.looked_up  build 1", seconds=120)
    replay_lake.write({"schemas/thing.sql": NAMED})
    asked = ("replay", "shelf", "--from", "2026-01-01T00:00")
    died = lake.start(*asked, HEADRACE_FAULT="kill-application@raw.things:replayed")
    assert died.wait(seconds=180) == -signal.SIGKILL, died.said()
    replay_lake.send([thing(22)])
    live.wait_to_say("checkpoint 2", seconds=60)
    preview = lake.run(*asked, "--dry-run")
    assert "No row was changed" in preview, preview
    replay_lake.send([thing(23)])
    output = lake.run(*asked)
    assert "raw.things" in output, output
    live.wait_to_say("checkpoint 3", seconds=60)
    replay_lake.send([thing(24, n=999)])
    wait_until(lambda: newest_of(replay_lake)["thing-4"] == 999, what="the live run to go on building", seconds=120)
    live.signal(signal.SIGTERM)
    assert live.wait(seconds=60) == 0, live.said()
    assert "failed" not in live.said()
    assert "Traceback" not in live.said()
    replay_lake.check(landed=23, refused=2)
    named = {row["n"]: row["name"] for row in replay_lake.rows("raw.things", "n", "name")}
    assert all(named[n] == f"name {n}" for n in range(20))
    assert newest_of(replay_lake) == {"thing-0": 15, "thing-1": 16, "thing-2": 22, "thing-3": 23, "thing-4": 999}


def newest_of(replay_lake: ReplayLake) -> dict[str, int]:
    return {row["id"]: row["newest"] for row in replay_lake.rows("marts.counted", "id", "newest")}


def counted(verified: Verified) -> tuple[int, int]:
    return verified.landed, verified.quarantined
