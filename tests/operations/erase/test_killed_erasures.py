"""An erasure killed at any step is finished by the next command, with the same result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.app.waiting_requests import WaitingRequests
from headrace.errors import OutdatedError
from headrace.iceberg.files import in_flight
from headrace.iceberg.metadata.erasures import read_erased_offsets
from headrace.operations.erase import erasing as erasing_module
from headrace.operations.erase import forgetting as forgetting_module
from headrace.operations.erase.note import read_notes
from headrace.settings import Settings
from tests.operations.erase.people_lake import PEOPLE, PeopleLake, other, read_erasures
from tests.operations.erase.test_forgetting import ANN, fill
from tests.support.crashing import KilledError, die_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

TABLES = ("staging/people.sql", "staging/members.sql", "staging/orders.sql")
PLACES = (
    "forget:noted",
    "raw.members:staged",
    "raw.members:erased",
    "raw.orders:staged",
    "forget:landed",
    "forget:quarantined",
    "forget:built",
    "forget:published",
    "forget:purged",
    "forget:proved",
)


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fault points at which the erasure is killed; each one is removed when it fires."""
    return die_in(monkeypatch, erasing_module, forgetting_module)


def test_erasure_killed_at_any_step_is_finished(spark: SparkSession, tmp_path: Path, die_at: list[str]) -> None:
    whole, torn = PeopleLake(tmp_path / "whole", spark, TABLES), PeopleLake(tmp_path / "torn", spark, TABLES)
    for people_lake in (whole, torn):
        fill(people_lake)
    whole.forget(ANN)
    die_at[:] = PLACES
    with pytest.raises(KilledError, match="forget:noted"):
        torn.forget(ANN)
    for place in PLACES[1:]:
        assert read_notes(torn.settings, "club"), "what tells the person is kept until it is over"
        with pytest.raises(KilledError, match=place):
            torn.finish()
        torn.build()  # builds continue in between
    assert torn.finish().holds
    assert read_notes(torn.settings, "club") == ()
    assert torn.all_rows() == whole.all_rows()
    assert torn.refused() == whole.refused()
    for stream in ("club.members", "club.orders", "club.other"):
        offsets = sorted(read_erased_offsets(torn.catalog, stream))
        assert offsets == sorted(read_erased_offsets(whole.catalog, stream)), "each row is accounted for once"
    assert raw_counts(torn) == raw_counts(whole)


def raw_counts(people_lake: PeopleLake) -> set[tuple[object, ...]]:
    """Return the results for raw tables. A build may remove rows that it refuses before the erasure reaches them."""
    rows = read_erasures(people_lake.catalog, "club")
    return {(row["table_name"], row["rows_removed"], row["rows_redacted"]) for row in rows if "raw." in str(row["table_name"])}


def test_waiting_requests_are_reported_once(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    reports: list[str] = []
    waiting = WaitingRequests(people_lake.lake, reports.append)
    waiting.look()
    people_lake.land("other", [other({"email": ANN}, kind="redact"), other({"email": ANN})])
    waiting.look()
    waiting.look()
    assert reports == [
        "raw.other: 1 pending erasure request. Stop this command, then run: headrace erase club --requested",
    ]


@pytest.mark.parametrize("where", ["raw.members", "metadata.quarantine"])
def test_erasure_stages_files_again_that_are_too_old(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    people_lake = PeopleLake(tmp_path, spark, TABLES)
    fill(people_lake)
    late = [where]

    def check_in_time(settings: Settings, *, began: float, where: str, next_step: str) -> None:
        is_late = where in late and not late.remove(where)  # type: ignore[func-returns-value]
        in_flight.check_in_time(settings, began=0.0 if is_late else began, where=where, next_step=next_step)

    monkeypatch.setattr(erasing_module, "check_in_time", check_in_time)
    with pytest.raises(OutdatedError, match="run the same command again"):
        people_lake.forget(ANN)
    assert people_lake.finish().holds
