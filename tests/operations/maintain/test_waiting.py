"""`headrace maintain` during an outage of the catalog or the object store: it retries, and continues with the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.backoff import Backoff
from headrace.errors import UnavailableError
from headrace.iceberg.catalog.tables import find_catalog
from headrace.operations.maintain import maintaining
from headrace.operations.maintain.maintaining import Target, Work, list_existing, list_work, maintain_all
from headrace.sessions import retry_policy as retry_module
from headrace.sessions.retry_policy import RetryPolicy
from headrace.settings import Settings, load_settings

AWAY = OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Couldn't connect to server")


class Weather:
    """Servers with one outage when each table in `storms` is reached."""

    def __init__(self, *storms: str) -> None:
        self.storms = [*storms]
        self.done: list[str] = []

    def maintain_table(self, keeper: object, session: object, owner: object, target: Target) -> None:
        if str(target.name) in self.storms:
            self.storms.remove(str(target.name))
            raise AWAY
        self.done.append(str(target.name))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(retry_module, "OUTAGES", Backoff(0.01, longest=10.0))
    monkeypatch.setattr(maintaining, "open_spark_catalog", lambda spark, settings: spark)
    return load_settings(flags={}, environ={}, folder=tmp_path)


def maintain(settings: Settings, work: tuple[Work, ...], *, retry_policy: RetryPolicy | None) -> None:
    spark: Any = None
    maintain_all(settings, spark, work, retry_policy=retry_policy)


def test_maintain_all_continues_after_an_outage(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    work, reports = list_work(settings, []), list[str]()
    names = [str(target.name) for _, target in work]
    weather = Weather(names[1], names[1], names[3])
    monkeypatch.setattr(maintaining, "maintain_table", weather.maintain_table)
    maintain(settings, work, retry_policy=RetryPolicy("maintenance", report=reports.append))
    assert weather.done == names
    first_words = [sentence.split(": ")[1].split(" ")[0] for sentence in reports]
    assert first_words == ["the", "recovered", "the", "recovered"], reports
    assert "object store" in reports[0]


def test_maintain_all_raises_at_once_without_a_retry_policy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    work = list_work(settings, [])
    monkeypatch.setattr(maintaining, "maintain_table", Weather(str(work[0][1].name)).maintain_table)
    with pytest.raises(UnavailableError, match="object store"):
        maintain(settings, work, retry_policy=None)


def test_list_existing_retries_an_outage_of_the_catalog(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    failures, reports = iter([UnavailableError("the catalog does not answer: refused")]), list[str]()

    def find(settings: Settings) -> object:
        for failure in failures:
            raise failure
        return find_catalog(settings)

    monkeypatch.setattr(maintaining, "find_catalog", find)
    assert (
        list_existing(settings, list_work(settings, []), retry_policy=RetryPolicy("maintenance", report=reports.append)) == ()
    )
    assert [sentence.split(";")[0] for sentence in reports] == [
        "maintenance: the catalog does not answer: refused",
        "maintenance: recovered after 0 s",
    ]
