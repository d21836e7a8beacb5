"""Replay messages beside landing; each message is in the lake exactly once afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from headrace.backoff import Backoff
from headrace.build.plan import plan_table
from headrace.errors import GapError, LandingError, TopicResetError, UnavailableError
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.files import in_flight
from headrace.iceberg.files.spark_files import load_java_table, plan_files
from headrace.iceberg.ledgers.replay import Window
from headrace.iceberg.maintenance.compact import Compaction, compact_group
from headrace.iceberg.maintenance.groups import Group, list_files
from headrace.iceberg.metadata.erasures import ErasedTable, Offset, record_erasure
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.commit_log import read_log
from headrace.landing.landed import Batch
from headrace.landing.places import places_of
from headrace.landing.topic_choice import ReplacedTopic
from headrace.operations.replay import replaying
from headrace.operations.replay.choice import ReplayRequest
from headrace.operations.replay.compare import Counts
from headrace.operations.replay.refused_messages import export_refused, read_edited
from headrace.sessions import retry_policy as retry_module
from headrace.sessions.landing import Session, land
from headrace.sessions.retry_policy import RetryPolicy
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.pipeline import TableName
from tests.operations.replay.replay_lake import BIG, WIDE, ReplayLake, hours, thing
from tests.support.lake import Lake
from tests.support.topics import delete_records, replace_topic
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
TABLES = ["staging.latest", "marts.counted", "marts.looked_up"]


def actions(replay_lake: ReplayLake) -> list[str]:
    return [plan_table(replay_lake.lake.catalog, replay_lake.pipeline, table).action for table in replay_lake.pipeline.tables]


def erase(replay_lake: ReplayLake, at: Offset, *, redacted: Offset) -> None:
    """Remove a row, and record another one as redacted, like an erasure."""
    erased = ErasedTable(
        "e1",
        "shelf",
        subjects=(),
        request_ids=(),
        table_name="raw.things",
        begun_at=hours(0),
        stream="shelf.things",
        rows_removed=1,
        rows_redacted=1,
        offsets=(at,),
        redacted_offsets=(redacted,),
    )
    record_erasure(replay_lake.lake.catalog, replay_lake.lake.settings(), "e1", [erased])
    replay_lake.lake.table("raw.things").delete(f"kafka_partition = {at.partition} AND kafka_offset = {at.offset}")


def test_replay_corrects_a_window_and_landing_continues(lake: Lake, spark: SparkSession) -> None:
    replay_lake = ReplayLake(lake, spark)
    replay_lake.send([thing(number) for number in range(10)])
    replay_lake.send([thing(10, n=BIG), b"{broken", thing(12, n=BIG)])
    replay_lake.land()
    replay_lake.build()
    replay_lake.check(landed=10, refused=3)
    live = replay_lake.lake.lander(replay_lake.pipeline)
    replay_lake.write({"schemas/thing.sql": WIDE})
    wanted = ReplayRequest(Window(hours(4), hours(12)))
    right = Counts(replaced=6, recovered=1, still_refused=1)

    done = replay_lake.replay(wanted)
    assert [(stream.read, stream.counts) for stream in done.streams] == [(8, right)]
    assert [str(outcome.table.table) for outcome in done.outcomes if outcome.built] == TABLES
    assert done.holds
    replay_lake.check(landed=11, refused=2)
    named = replay_lake.rows("raw.things", "n", "name")
    assert named == sorted(
        [{"n": n, "name": f"name {n}" if n >= 4 else None} for n in range(10)] + [{"n": BIG, "name": "name 10"}],
        key=lambda row: [str(row["n"]), str(row["name"])],
    )
    assert {row["newest"] for row in replay_lake.rows("marts.looked_up", "id", "newest") if row["id"] == "thing-0"} == {BIG}
    assert actions(replay_lake) == ["nothing"] * 3
    assert not list((replay_lake.lake.home / "warehouse/raw/things/replay").rglob("*.parquet")), (
        "what was read again is deleted"
    )

    again = replay_lake.replay(wanted)
    assert [stream.counts for stream in again.streams] == [Counts(unchanged=7, still_refused=1)]
    assert again.rebuilds == ()

    replay_lake.send([thing(13)])
    batch = live.land_batch(spark.sparkContext)
    assert batch is not None
    assert [stream.rows for stream in batch.landed] == [1]
    replay_lake.check(landed=12, refused=2)
    assert actions(replay_lake)[0] == "increment"


def test_replay_keeps_rows_of_an_earlier_topic(lake: Lake, spark: SparkSession) -> None:
    replay_lake = ReplayLake(lake, spark, tables=0)
    replay_lake.send([thing(0), thing(1), b"{broken", thing(3)])
    replay_lake.land()
    replace_topic(admin_client(KafkaServers(lake.servers)), lake.topic, partitions=2)
    with pytest.raises(TopicResetError, match="deleted and created again"):
        replay_lake.replay(ReplayRequest(Window(hours(0), None)))
    replay_lake.sent = 0
    replay_lake.send([thing(100), b"{broken", thing(102), thing(103), thing(104)])
    lake.land(spark, replay_lake.pipeline, replaced_topic=ReplacedTopic.RESTART)
    table = lake.table("raw.things")
    current = table.current_snapshot()
    assert current is not None
    session = open_spark_catalog(spark, lake.settings())
    use_session(session)
    planned = plan_files(load_java_table(session, TableName("raw", "things")), snapshot_id=current.snapshot_id)
    whole = Compaction((), 1 << 20)  # rows of both topics are in one file
    assert compact_group(session, TableName("raw", "things"), Group(list_files(table)), planned, at=current, how=whole)
    replay_lake.write({"schemas/thing.sql": WIDE})
    done = replay_lake.replay(ReplayRequest(Window(hours(0), None)))
    assert [stream.counts for stream in done.streams] == [Counts(replaced=4, still_refused=1)]
    named = [(row["n"], row["name"]) for row in replay_lake.rows("raw.things", "n", "name")]
    assert sorted(named) == [(0, None), (1, None), (3, None), *((n, f"name {n}") for n in (100, 102, 103, 104))]
    assert len(lake.quarantine("shelf.things")) == 2
    (verified,) = lake.verify(replay_lake.pipeline)
    assert (verified.landed, verified.quarantined, verified.earlier) == (4, 1, 4)
    assert (verified.missing, verified.doubled, verified.waiting) == (0, 0, 0)


def test_replay_runs_beside_landing(lake: Lake, spark: SparkSession) -> None:
    replay_lake = ReplayLake(lake, spark, tables=0)
    replay_lake.send([thing(number) for number in range(20)])
    replay_lake.land()
    servers, lander = KafkaServers(replay_lake.lake.servers), replay_lake.lake.lander(replay_lake.pipeline)
    session = Session(replay_lake.lake.settings(), replay_lake.pipeline, servers, lander, spark)
    replay_lake.write({"schemas/thing.sql": WIDE})
    stop = Event()
    reports: list[str] = []
    batches: list[Batch] = []
    errors: list[BaseException] = []

    def live() -> None:
        try:
            land(session, once=False, stop=stop, landed=batches.append, report=reports.append)
        except BaseException as error:
            errors.append(error)

    def traffic() -> None:
        while not stop.is_set():
            replay_lake.send([thing(replay_lake.sent), thing(replay_lake.sent + 1, n=BIG)])
            time.sleep(0.3)

    threads = [Thread(target=live), Thread(target=traffic)]
    for thread in threads:
        thread.start()
    try:
        done = replay_lake.replay(ReplayRequest(Window(hours(0), None)))
        wait_until(lambda: errors or len(batches) > 1, what="landing to go on", seconds=60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert (errors, reports) == ([], []), "landing was not disturbed"
    assert done.streams[0].counts.replaced >= 20
    replay_lake.land()
    replay_lake.replay(ReplayRequest(Window(hours(0), None)))
    replay_lake.check(landed=replay_lake.sent, refused=0)
    assert all(row["name"] for row in replay_lake.rows("raw.things", "name"))


def test_replay_names_offsets_that_kafka_no_longer_has(lake: Lake, spark: SparkSession) -> None:
    replay_lake = ReplayLake(lake, spark, tables=2)
    replay_lake.send([thing(number) for number in range(8)])
    replay_lake.land()
    replay_lake.build()
    delete_records(admin_client(KafkaServers(replay_lake.lake.servers)), replay_lake.lake.topic, {0: 2})
    replay_lake.write({"schemas/thing.sql": WIDE})
    with pytest.raises(GapError, match="offsets 0 to 1 of partition 0") as gap:
        replay_lake.replay(ReplayRequest(Window(hours(0), None)))
    assert "--from-raw" in str(gap.value)
    erase(replay_lake, Offset(1, 3), redacted=Offset(0, 3))
    later = replay_lake.replay(ReplayRequest(Window(hours(3), None), table="latest"))
    assert [stream.counts for stream in later.streams] == [Counts(replaced=3)]
    named = {row["n"]: row["name"] for row in replay_lake.rows("raw.things", "n", "name")}
    assert named == {n: f"name {n}" if n in (3, 4, 5) else None for n in range(7)}, "what was erased does not come back"
    rebuilt = replay_lake.replay(ReplayRequest(table="counted"))
    assert [str(outcome.table.table) for outcome in rebuilt.outcomes if outcome.built] == ["marts.counted"]
    assert rebuilt.streams == ()


def test_replay_recovers_refused_messages_edited_by_hand(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    replay_lake = ReplayLake(lake, spark, tables=1)
    replay_lake.send([thing(1), thing(2, n=BIG), b"{broken", b"{hopeless", thing(5, n=5000)])
    replay_lake.land()
    replay_lake.build()
    replay_lake.check(landed=2, refused=3)
    assert [row["reason"] for row in replay_lake.lake.quarantine("staging.latest")] == ["the number is small"]

    path = tmp_path / "refused.jsonl"
    assert (
        export_refused(replay_lake.lake.settings(), replay_lake.pipeline, ReplayRequest(quarantined=True, reason="JSON"), path)
        == 2
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["text"] for line in lines] == ["{broken", "{hopeless"]
    lines[0] = {name: lines[0][name] for name in ("stream", "partition", "offset")} | {"event": {"id": "edited", "n": 3}}
    path.write_text("\n".join(json.dumps(line) for line in lines))
    edited = read_edited(replay_lake.pipeline, path)
    done = replay_lake.replay(ReplayRequest(quarantined=True, edited=edited))
    assert [stream.counts for stream in done.streams] == [Counts(recovered=1, still_refused=1)]
    replay_lake.check(landed=3, refused=2)
    (row,) = [row for row in replay_lake.lake.rows("raw.things") if row["id"] == "edited"]
    assert (row["kafka_partition"], row["kafka_offset"], row["kafka_timestamp"]) == (0, 1, hours(2))
    assert "edited" in {row["id"] for row in replay_lake.rows("staging.latest", "id")}
    with pytest.raises(LandingError, match="no message at partition 0, offset 1"):
        replay_lake.replay(ReplayRequest(quarantined=True, edited=edited))

    window = replay_lake.replay(ReplayRequest(Window(hours(0), None)))
    assert [stream.counts for stream in window.streams] == [Counts(unchanged=2, kept=1, still_refused=2)]

    latest = "SELECT id, n FROM raw.things"
    replay_lake.write({"schemas/thing.sql": WIDE, "staging/latest.sql": f"/*\nkeys: [id]\nsequence_by: n\n*/\n{latest}"})
    preview = replay_lake.replay(ReplayRequest(quarantined=True), dry_run=True)
    assert [stream.counts for stream in preview.streams] == [Counts(recovered=1, still_refused=1)]
    assert [str(table) for table in preview.rebuilds] == ["staging.latest"]
    replay_lake.check(landed=3, refused=2)
    done = replay_lake.replay(ReplayRequest(quarantined=True))
    assert done.streams == preview.streams
    assert [str(outcome.table.table) for outcome in done.outcomes if outcome.built] == ["staging.latest"]
    replay_lake.check(landed=4, refused=1)
    assert replay_lake.lake.quarantine("staging.latest") == []
    assert {row["n"] for row in replay_lake.rows("staging.latest", "n")} == {1, 3, BIG, 5000}
    assert replay_lake.replay(ReplayRequest(quarantined=True)).rebuilds == ()


def test_replay_reads_again_if_staged_files_are_too_old(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the machine had slept: maintenance may have removed the files."""
    replay_lake = ReplayLake(lake, spark, tables=1)
    replay_lake.send([*(thing(number) for number in range(4)), thing(4, n=BIG)])
    replay_lake.land()
    replay_lake.write({"schemas/thing.sql": WIDE})
    begun: list[float] = []

    def check_in_time(settings: Settings, *, began: float, where: str) -> None:
        begun.append(began)
        in_flight.check_in_time(settings, began=0.0 if len(begun) == 1 else began, where=where)

    monkeypatch.setattr(replaying, "check_in_time", check_in_time)
    (done,) = replay_lake.replay(ReplayRequest(Window(hours(0), None))).streams
    assert done.counts.recovered == 1
    assert len(begun) == 2
    assert begun[0] < begun[1]
    replay_lake.check(landed=5, refused=0)


def test_replay_retries_outages_in_every_step(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between the commits of the table and the quarantine: the replay recognises its own commit."""
    replay_lake = ReplayLake(lake, spark, tables=1)
    replay_lake.send([*(thing(number) for number in range(4)), thing(4, n=BIG)])
    replay_lake.land()
    replay_lake.build()
    replay_lake.write({"schemas/thing.sql": WIDE})
    monkeypatch.setattr(retry_module, "OUTAGES", Backoff(0.01, longest=10.0))
    steps, reports = ["plan_target", "find_ranges", "compare", "read_build", "commit_replay", "flush_replayed"], list[str]()
    for step in steps:
        monkeypatch.setattr(replaying, step, away_once(getattr(replaying, step)))
    done = replay_lake.replay(ReplayRequest(Window(hours(0), None)), retry_policy=RetryPolicy("replay", report=reports.append))
    assert done.holds
    assert done.streams[0].counts.recovered == 1
    assert [sentence.split(" ")[1] for sentence in reports] == ["the", "recovered"] * 3, (
        "read, look what was built, put in place"
    )
    replay_lake.check(landed=5, refused=0)
    logged = [entry.s3_key for entry in read_log(places_of(replay_lake.pipeline.streams[0], lake.settings()).commit_log)]
    assert len(logged) == len(set(logged)), "a step that is tried again logs its files once"


def away_once(step: Callable[..., Any]) -> Callable[..., Any]:
    failures = iter([UnavailableError("the catalog does not answer: no route")])

    def attempt(*given: Any, **named: Any) -> Any:
        for failure in failures:
            raise failure
        return step(*given, **named)

    return attempt
