"""Isolation: a message that breaks a task is quarantined alone, and a stream that fails for another reason stops alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import pyarrow as pa
import pytest
import requests
from polars.exceptions import ComputeError
from py4j.protocol import Py4JJavaError
from pyiceberg.schema import Schema

from headrace.backoff import Backoff
from headrace.errors import HeadraceError, LandingError, NotFoundError, SpecError, UnavailableError
from headrace.iceberg.commits import commit
from headrace.iceberg.files.write import TableFormat
from headrace.iceberg.schema.columns import iceberg_schema, partition_spec
from headrace.kafka.client import KafkaServers
from headrace.kafka.records import Messages
from headrace.kafka.topics import find_bounds
from headrace.landing import failures, watched_topics
from headrace.landing.batch import StreamResult
from headrace.landing.decode import Decoded, Decoder, GrowthError
from headrace.landing.isolation import find_failing, may_be_data, split_isolated
from headrace.landing.landed import Batch
from headrace.landing.lander import Lander
from headrace.landing.task_errors import explain_failure
from headrace.sessions.landing import Session, land
from headrace.spec import Pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream, Transform
from tests.iceberg.tables import roll_back
from tests.landing.inline_spark import InlineSpark
from tests.landing.streams import decoder_for, json_stream, messages_of
from tests.landing.test_landing import write_pipeline
from tests.support.lake import Lake, check_verified
from tests.support.topics import Sent, delete_records, make_topic, produce

POISON = "poison-pill"
REASON = f"ValueError: a drill asked messages with {POISON} to fail"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        pa.ArrowInvalid("x"),
        pa.ArrowNotImplementedError("x"),
        OverflowError("x"),
        UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
        KeyError("x"),
        RecursionError("x"),
        ComputeError("x"),
    ],
)
def test_may_be_data_accepts_errors_of_values(error: Exception) -> None:
    assert may_be_data(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        pa.ArrowIOError("x"),
        MemoryError(),
        pa.ArrowMemoryError("x"),
        TimeoutError(),
        ConnectionResetError(),
        UnavailableError("x"),
        NotFoundError("x"),
        GrowthError(()),
        requests.exceptions.ConnectionError("x"),
        requests.exceptions.JSONDecodeError("x", "", 0),
        ImportError("x"),
        RuntimeError("x"),
    ],
)
def test_may_be_data_rejects_errors_of_infrastructure(error: Exception) -> None:
    assert not may_be_data(error)


def test_find_failing_finds_every_failing_message() -> None:
    values: list[bytes | None] = [b"bad" if index in (0, 7, 8, 99) else b"good" for index in range(100)]
    tries: list[int] = []

    def attempt(part: Messages) -> None:
        tries.append(len(part))
        assert part.places["offset"].to_pylist() == sorted(part.places["offset"].to_pylist())
        if b"bad" in part.values:
            raise ValueError("bad")

    failing = find_failing(messages_of(values), attempt)
    assert sorted(failing) == [0, 7, 8, 99]
    assert len(tries) < 60


def test_split_isolated_raises_errors_that_no_message_causes() -> None:
    def together(part: Messages) -> None:
        if len(part) > 1:
            raise ValueError("too many")

    assert find_failing(messages_of([b"a", b"b"]), together) == {}

    def away(part: Messages) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        find_failing(messages_of([b"a"]), away)


class Fragile:
    """A decoder with a bug: it fails on messages that contain a text."""

    def __init__(self, decoder: Decoder, text: bytes) -> None:
        self._decoder, self._text = decoder, text

    def decode(self, values: list[bytes | None]) -> Decoded:
        if any(value and self._text in value for value in values):
            raise OverflowError("Python int too large to convert to C long")
        return self._decoder.decode(values)

    def decode_block(self, batches: object) -> None:
        return None


def form_of(stream: Stream, *partition_by: Transform) -> TableFormat:
    schema: Schema = iceberg_schema(landed_columns(stream))
    return TableFormat(schema, partition_spec(partition_by, schema))


def test_split_isolated_reports_the_error_of_each_message() -> None:
    stream = json_stream("id INT")
    values: list[bytes | None] = [b'{"id": 1}', b'{"id": 12345}', b'{"id": "x"}', b'{"id": 2}']
    table, decoded, traces = split_isolated(
        messages_of(values),
        decoder=Fragile(decoder_for(stream), b"12345"),
        stream=stream,
        form=form_of(stream),
        checkpoint_id=1,
    )
    assert table["id"].to_pylist() == [1, 2]
    assert decoded.bad[1] == "OverflowError: Python int too large to convert to C long"
    assert decoded.bad[2].startswith("wrong type")
    assert decoded.refused == (decoded.bad[1],)
    assert "in decode" in traces[0]


def test_split_isolated_raises_if_the_table_cannot_be_written() -> None:
    stream = json_stream("id BINARY")
    form = form_of(stream, Transform("truncate", "id", 2))
    with pytest.raises(ValueError, match="Unsupported data type for truncate"):
        split_isolated(messages_of([b'{"id": "AAAA"}']), decoder=decoder_for(stream), stream=stream, form=form, checkpoint_id=1)


def test_explain_failure_reports_why_a_worker_died(tmp_path: Path) -> None:
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
    )
    explained = explain_failure(error, logs=tmp_path)
    assert isinstance(explained, LandingError)
    assert "Python worker exited unexpectedly (crashed)" in explained.what


Shop = tuple[Lake, Pipeline, Callable[..., list[Sent]]]


@pytest.fixture
def shop(lake: Lake) -> Shop:
    """A pipeline of two streams, and a producer of numbers for one of them."""
    write_pipeline(lake, "shop", {"orders": "id INT NOT NULL, name STRING", "refunds": "id INT NOT NULL, name STRING"})
    for stream in ("orders", "refunds"):
        make_topic(lake.servers, f"{lake.topic}-{stream}", partitions=2)

    def send(stream: str, *numbers: int, poisoned: tuple[int, ...] = ()) -> list[Sent]:
        values: list[bytes | None] = [
            json.dumps({"id": number, "name": POISON if number in poisoned else "fine"}).encode() for number in numbers
        ]
        return produce(lake.servers, f"{lake.topic}-{stream}", values, partitions=2)

    return lake, lake.pipeline("shop"), send


def ids(lake: Lake, stream: str) -> list[int]:
    return sorted(row["id"] for row in lake.rows(f"shop.{stream}", "id"))


def run_once(lake: Lake, pipeline: Pipeline, lander: Lander | None = None) -> tuple[list[Batch], list[str]]:
    """Land everything like `headrace land --once`, with tasks in this process. Return the batches and the reports."""
    batches: list[Batch] = []
    reports: list[str] = []
    spark: Any = InlineSpark()
    session = Session(lake.settings(), pipeline, KafkaServers(lake.servers), lander or lake.lander(pipeline), spark)
    try:
        land(session, once=True, stop=Event(), landed=batches.append, report=reports.append)
    except HeadraceError as error:
        reports.append(f"exit {error.exit_code}: {error}")
    return batches, reports


def log_of(lake: Lake) -> str:
    return (lake.home / "logs" / "landing.log").read_text(encoding="utf-8")


@pytest.mark.services
def test_landing_quarantines_a_poison_message_and_lands_the_rest(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    sent = send("orders", *range(3000), poisoned=(5, 6, 1700))
    send("refunds", 1, 2, 3)
    monkeypatch.setenv("HEADRACE_FAULT", f"fail-message@{POISON}")
    (batch,), reports = run_once(lake, pipeline)
    assert {landed.label: (landed.rows, landed.bad) for landed in batch.landed} == {
        "shop.orders": (2997, 3),
        "shop.refunds": (3, 0),
    }
    assert ids(lake, "orders") == [number for number in range(3000) if number not in (5, 6, 1700)]
    refused = {(row["partition"], row["offset"]): row for row in lake.quarantine("shop.orders")}
    poison = {
        (message.partition, message.offset): message.value
        for message in sent
        if message.value and POISON.encode() in message.value
    }
    assert {at: row["original_bytes"] for at, row in refused.items()} == poison
    assert {row["reason"] for row in refused.values()} == {REASON}
    assert reports == [f"shop.orders: messages go to the quarantine: {REASON}"]
    assert "Traceback" in log_of(lake)
    assert REASON in log_of(lake)
    check_verified(lake, pipeline)


@pytest.mark.services
def test_landing_quarantines_a_message_refused_after_a_rollback(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    send("orders", 1, 2)
    run_once(lake, pipeline)
    before = lake.table("shop.orders").metadata.current_snapshot_id or 0
    sent = send("orders", 3, 4, poisoned=(3,))
    sent += produce(lake.servers, f"{lake.topic}-orders", [b"no JSON"], partitions=2)
    run_once(lake, pipeline)
    assert [row["original_bytes"] for row in lake.quarantine("shop.orders")] == [b"no JSON"]
    roll_back(lake.catalog, lake.table("shop.orders"), before)
    monkeypatch.setenv("HEADRACE_FAULT", f"fail-message@{POISON}")
    run_once(lake, pipeline)
    assert ids(lake, "orders") == [1, 2, 4]
    assert {row["original_bytes"] for row in lake.quarantine("shop.orders")} == {sent[0].value, b"no JSON"}
    check_verified(lake, pipeline)


@pytest.mark.services
def test_unwritable_stream_stops_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    send("orders", *range(10))
    send("refunds", *range(20))
    monkeypatch.setenv("HEADRACE_FAULT", f"break-stream@{lake.topic}-orders")
    _, reports = run_once(lake, pipeline)
    assert ids(lake, "refunds") == list(range(20))
    assert ids(lake, "orders") == []
    assert lake.quarantine("shop.orders") == []
    cause = f"OSError: [Errno 28] a drill asked writing of {lake.topic}-orders to fail"
    assert [line.splitlines()[0] for line in reports] == [
        f"shop.orders failed and will be retried. shop.orders: {cause}",
        f"exit 1: shop.orders: {cause}",
    ]
    assert log_of(lake).count("Traceback") == log_of(lake).count(": try ") == 3
    monkeypatch.delenv("HEADRACE_FAULT")
    run_once(lake, pipeline)
    assert ids(lake, "orders") == list(range(10))
    check_verified(lake, pipeline)


@pytest.mark.services
def test_failed_stream_retries_with_backoff_and_recovers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "STREAMS", Backoff(60.0, longest=60.0))
    lake, pipeline, send = shop
    lander, spark = lake.lander(pipeline), InlineSpark()
    send("orders", 1)
    monkeypatch.setenv("HEADRACE_FAULT", f"break-stream@{lake.topic}-orders")
    context: Any = spark
    batch = lander.land_batch(context)
    assert batch is not None
    assert batch.landed == ()
    assert list(lander.stopped) == ["shop.orders"]
    send("refunds", 1)
    batch = lander.land_batch(context)
    assert batch is not None
    assert [landed.label for landed in batch.landed] == ["shop.refunds"]
    assert lander.land_batch(context) is None, "orders waits"
    wait = lander.seconds_to_retry(most=1)
    assert wait is not None
    assert 0 < wait <= 60
    monkeypatch.delenv("HEADRACE_FAULT")
    (failed,) = [stream for stream in lander.streams if stream.failure]

    def come_due(*, most: int) -> float | None:
        if failed.failure is None:
            return None
        failed.failure = replace(failed.failure, retry_at=0.0)
        return 0.0

    monkeypatch.setattr(lander, "seconds_to_retry", come_due)
    _, reports = run_once(lake, pipeline, lander)
    assert not lander.stopped
    assert reports[-1] == "shop.orders is landing again"
    assert (ids(lake, "orders"), ids(lake, "refunds")) == ([1], [1])
    check_verified(lake, pipeline)


@pytest.mark.services
def test_failed_job_runs_again_stream_by_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    send("orders", 1)
    send("refunds", 1)
    lander, spark = lake.lander(pipeline), InlineSpark()
    run = lander._run
    context: Any = spark

    def crash(sc: Any, active: Any, ranges: Any) -> dict[str, list[StreamResult]]:
        if any(stream.label == "shop.orders" for stream in active):
            raise LandingError("Python worker exited unexpectedly (crashed)")
        return run(sc, active, ranges)

    monkeypatch.setattr(lander, "_run", crash)
    batch = lander.land_batch(context)
    assert batch is not None
    assert [landed.label for landed in batch.landed] == ["shop.refunds"]
    assert "crashed" in str(lander.stopped["shop.orders"])
    assert "crashed" in log_of(lake)
    assert ids(lake, "refunds") == [1]


@pytest.mark.services
def test_missing_table_stops_only_its_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "COMMITS", Backoff(0.1, attempts=1))
    lake, pipeline, send = shop
    lander = lake.lander(pipeline)
    lake.catalog.drop_table("shop.orders")
    send("orders", 1)
    send("refunds", 1)
    _, reports = run_once(lake, pipeline, lander)
    assert ids(lake, "refunds") == [1]
    assert reports[-1].startswith("exit 1: shop.orders"), reports
    assert lake.quarantine("shop.orders") == []


@pytest.mark.services
def test_unreadable_table_stops_only_its_stream(shop: Shop) -> None:
    lake, pipeline, send = shop
    send("orders", 1)
    send("refunds", 1)
    run_once(lake, pipeline)
    write_pipeline(lake, "shop", {"orders": "id DATE NOT NULL, name STRING", "refunds": "id INT NOT NULL, name STRING"})
    changed = lake.pipeline("shop")
    send("refunds", 2)
    _, reports = run_once(lake, changed)
    assert ids(lake, "refunds") == [1, 2]
    assert reports[0].startswith("shop.orders is stopped. "), reports
    assert reports[-1].startswith("exit 2: "), reports
    assert "id" in reports[-1]
    write_pipeline(lake, "shop", {"orders": "id DATE NOT NULL, name STRING"})
    with pytest.raises(SpecError):
        lake.lander(lake.pipeline("shop"))


@pytest.mark.services
def test_unauthorized_topic_stops_only_its_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka deleted offsets after the plan: the broker refuses them, and still serves the other topic."""
    lake, pipeline, send = shop
    send("orders", *range(10))
    send("refunds", *range(10))
    lander, spark = lake.lander(pipeline), InlineSpark()
    run = lander._run

    def too_late(*arguments: Any) -> Any:
        monkeypatch.setattr(lander, "_run", run)
        admin = make_topic(lake.servers, f"{lake.topic}-other")
        delete_records(admin, f"{lake.topic}-orders", {0: 3, 1: 3})
        return run(*arguments)

    monkeypatch.setattr(lander, "_run", too_late)
    lander._consumer = (("client.id", "new"), *lander._consumer)
    context: Any = spark
    batch = lander.land_batch(context)
    assert batch is not None
    assert [landed.label for landed in batch.landed] == ["shop.refunds"]
    assert isinstance(lander.stopped["shop.orders"], UnavailableError)
    assert ids(lake, "refunds") == list(range(10))


@pytest.mark.services
def test_topic_without_end_offsets_stops_only_its_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    send("orders", 1)
    send("refunds", 1)
    topic = f"{lake.topic}-orders"

    def refuse(admin: Any, partitions: Any) -> Any:
        bounds, errors = find_bounds(admin, [key for key in partitions if key[0] != topic])
        return bounds, {**errors, topic: UnavailableError("Kafka does not answer: Topic authorization failed")}

    lander, context = lake.lander(pipeline), cast(Any, InlineSpark())
    monkeypatch.setattr(watched_topics, "find_bounds", refuse)
    batch = lander.land_batch(context)
    assert batch is not None
    assert [landed.label for landed in batch.landed] == ["shop.refunds"]
    assert "authorization" in str(lander.stopped["shop.orders"])
    monkeypatch.setattr(watched_topics, "find_bounds", find_bounds)
    run_once(lake, pipeline, lander)
    assert not lander.stopped
    assert ids(lake, "orders") == [1]
    check_verified(lake, pipeline)


@pytest.mark.services
@pytest.mark.spark
def test_landing_is_exactly_once_after_a_kill_during_isolation(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline, send = shop
    send("orders", *range(500), poisoned=(77,))
    send("refunds", *range(10))
    died = lake.start("land", "shop", "--once", HEADRACE_FAULT=f"fail-message@{POISON},kill-application@committing")
    assert died.wait() == -signal.SIGKILL, died.said()
    monkeypatch.setenv("HEADRACE_FAULT", f"fail-message@{POISON}")
    _, reports = run_once(lake, pipeline)
    assert reports == []
    assert ids(lake, "orders") == [number for number in range(500) if number != 77]
    assert [row["reason"] for row in lake.quarantine("shop.orders")] == [REASON]
    check_verified(lake, pipeline)
