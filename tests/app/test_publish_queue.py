"""The publish queue: each table is published once it is built, while others are being built."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.app.publish_queue import publish_queue
from headrace.backoff import Backoff
from headrace.errors import PublishError, UnavailableError
from headrace.sessions import retry_policy
from headrace.settings import Settings, load_settings
from headrace.spec.model.pipeline import PostgresTable, TableName
from tests.support.waiting import wait_until

A, B = (PostgresTable(name, TableName("lake", name), "", ("id",), ("id",)) for name in "ab")


class FakePublisher:
    """A publisher that records table names, and raises `errors` first."""

    settings: Settings

    def __init__(self, errors: dict[str, list[Exception]] | None = None) -> None:
        self.pipeline = SimpleNamespace(name="lake", serving=SimpleNamespace(postgres=(A, B)))
        self.published: list[str] = []
        self.errors = errors or {}
        self.may_go_on = Event()
        self.may_go_on.set()

    def publish_table(self, table: PostgresTable) -> bool:
        assert self.may_go_on.wait(60)
        if self.errors.get(table.name):
            raise self.errors[table.name].pop(0)
        self.published.append(table.name)
        return True


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(FakePublisher, "settings", load_settings(flags={}, environ={}, folder=tmp_path), raising=False)
    monkeypatch.setattr(retry_policy, "OUTAGES", Backoff(0.01, longest=10.0))


def outcome(table: PostgresTable, *, built: bool = True) -> Any:
    return SimpleNamespace(table=SimpleNamespace(table=table.source), built=SimpleNamespace() if built else None)


def test_queue_publishes_while_other_tables_are_built() -> None:
    publisher: Any = FakePublisher()
    messages: list[object] = []
    with publish_queue(publisher) as queue:
        finished = queue.after(messages.append)
        finished(outcome(A))
        finished(outcome(B, built=False))
        wait_until(lambda: publisher.published == ["a"], what="the built table to be published")
    assert (publisher.published, len(messages)) == (["a"], 2)


def test_queue_does_not_block_builds_and_publishes_each_table_once() -> None:
    publisher: Any = FakePublisher()
    publisher.may_go_on.clear()
    with publish_queue(publisher) as queue:
        for _ in range(100):
            queue.add(B.source)
        publisher.may_go_on.set()
    assert publisher.published in (["b"], ["b", "b"])  # the second time for what was built during the first


def test_queue_retries_a_failed_table_and_continues_with_others() -> None:
    refused: list[Exception] = [PublishError("no such column", where="table a"), PublishError("no such column")]
    publisher: Any = FakePublisher({"a": refused})
    messages: list[str] = []
    with publish_queue(publisher, report=messages.append) as queue:
        queue.add()
        wait_until(lambda: len(publisher.published) == 2, what="both tables to be published")
    assert publisher.published == ["b", "a"]
    assert [sentence.split(":")[0] for sentence in messages] == ["publishing a", "publishing a"]
    assert (publisher.settings.logs / "publishing.log").read_text(encoding="utf-8").count("ERROR publishing a failed") == 2


def test_queue_waits_during_an_outage_of_postgres() -> None:
    away: list[Exception] = [UnavailableError("Postgres is away")]
    publisher: Any = FakePublisher({"a": away})
    messages: list[str] = []
    with publish_queue(publisher, report=messages.append) as queue:
        queue.add()
        wait_until(lambda: len(publisher.published) == 2, what="both tables to be published")
    assert messages[0] == "publishing: Postgres is away; retrying until it succeeds"
    assert len(messages) == 2


def test_queue_raises_an_unexpected_error() -> None:
    failed = Event()
    publisher: Any = FakePublisher({"a": [TypeError("a bug")]})

    def publish() -> None:
        with publish_queue(publisher, failed=failed.set) as queue:
            queue.add(A.source)
            assert failed.wait(60)

    with pytest.raises(TypeError, match="a bug"):
        publish()
    text = (publisher.settings.logs / "publishing.log").read_text(encoding="utf-8")
    assert "Traceback" in text
    assert text.endswith("TypeError: a bug\n")


def test_queue_tries_due_tables_once_more_at_the_end() -> None:
    refused: list[Exception] = [PublishError("refused") for _ in range(1000)]
    publisher: Any = FakePublisher({"a": refused})
    with publish_queue(publisher) as queue:
        queue.add()
    assert publisher.published == ["b"]
    with publish_queue(None) as queue:
        queue.add()
