"""An erased person leaves every table, the quarantine, the history and the disk; other persons' rows are unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import ErasureError
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.metadata.erasures import read_erased_offsets
from headrace.operations.erase.forgetting import Proof, preview_erasure
from headrace.operations.erase.identifiers import identify, is_concealed
from tests.operations.erase.people_lake import PEOPLE, PeopleLake, member, order, other, read_erasures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ANN, BOB = "ann@example.com", "bob@example.com"


def fill(people_lake: PeopleLake) -> None:
    """Ann in two spellings and with a guest order, Bob, who mentions her, and others with similar addresses."""
    people_lake.land(
        "members",
        [
            member("member-0001", " Ann@Example.com", phone="+1 555 0100 123", tags=[("mail", ANN)]),
            member("member-0002", BOB, tags=[("friend", "carl")]),
            member("member-0003", "joann@example.com"),
            member("member-0004", "ann@example.com.au"),
        ],
        refused=[b'{"id": "member-0001", broken', b"{ANN@example.com", b"{bob@example.com"],
    )
    people_lake.build()
    people_lake.land("members", [member("member-0001", ANN, name="Ann the second", n=2, phone="+1 555 0100 123")])
    people_lake.land(
        "orders",
        [
            order("order-0001", ANN, buyer="member-0001"),
            order("order-0002", None, buyer="member-0001", note="by id alone"),
            order("order-0003", BOB, buyer="member-0002", note=f"a gift for {ANN}, call +1 555 0100 123"),
            order("order-0004", "joann@example.com", note="hello"),
            order("order-0005", ANN, amount=0),
            order("order-0006", BOB, gift={"message": f"from {ANN}", "at": None}),
        ],
    )
    people_lake.land("other", [other({"cart": [1], "email": "ann\\u0040example.com"}), other({"cart": [2], "email": BOB})])
    people_lake.build()


@dataclass(frozen=True)
class Erased:
    """A lake from which Ann was erased, and its state before."""

    people_lake: PeopleLake
    before: dict[str, list[dict[str, Any]]]
    ledger: Ledger
    leftovers: tuple[Path, ...]
    proof: Proof


@pytest.fixture(scope="module")
def erased(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Erased:
    people_lake = PeopleLake(tmp_path_factory.mktemp("club"), spark)
    fill(people_lake)
    stray = people_lake.leave_stray("orders", [order("order-0009", ANN)])
    half = stray.with_name(f".{stray.name}.inprogress")
    half.write_bytes(b"PAR1" + ANN.encode())
    table = people_lake.table("raw.members")
    snapshot = table.metadata.current_snapshot_id
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot, "kept").commit()
    before, ledger = people_lake.all_rows(), read_ledger(table)
    return Erased(people_lake, before, ledger, (stray, half), people_lake.forget(ANN))


def test_forget_erases_a_person_from_all_tables(erased: Erased) -> None:
    assert erased.proof.hits == ()
    assert erased.proof.files_searched > 20
    before, after = erased.before, erased.people_lake.all_rows()
    gone = {"member-0001", "order-0001", "order-0002", "order-0005"}
    touched = {"order-0003", "order-0006"}
    for name in ("raw.members", "raw.orders"):
        unaffected = [row for row in before[name] if row["id"] not in gone | touched]
        assert [row for row in after[name] if row["id"] not in touched] == unaffected, (
            "others' rows are the same in every column"
        )
    notes = {row["id"]: (row["note"], row["gift"]) for row in after["raw.orders"] if row["id"] in touched}
    assert notes["order-0003"][0] == "a gift for [erased], call [erased]"
    assert notes["order-0006"] == (None, {"message": "from [erased]", "at": None})
    assert [row["payload"] for row in after["raw.other"]] == [json.dumps({"cart": [2], "email": BOB})]
    assert erased.people_lake.refused() == [b"{bob@example.com"]
    assert {row["id"] for row in after["staging.names"]} == {"member-0002", "member-0003", "member-0004"}
    assert {row["email"] for row in after["marts.spent"]} == {BOB, "joann@example.com"}
    assert not any("Ann" in str(row) for name, rows in after.items() for row in rows if name.startswith(("staging", "marts")))


def test_forget_leaves_nothing_on_disk(erased: Erased) -> None:
    """Uncompressed files are searched too: metadata, logs, notes."""
    assert not any(path.exists() for path in erased.leftovers)
    telling = (b"Ann the second", b"0100 123", b"member-0001", b"order-0001", b" Ann@Example.com")
    files = [path for path in erased.people_lake.settings.home.rglob("*") if path.is_file()]
    assert [path for path in files if any(identifier in path.read_bytes() for identifier in telling)] == []
    for name in ("raw.members", "raw.orders", "staging.names", "marts.spent"):
        assert len(erased.people_lake.table(name).snapshots()) == 1
    assert erased.proof.dropped_refs == ("raw.members kept",)


def test_forget_leaves_no_identifier_in_its_records(erased: Erased) -> None:
    rows = read_erasures(erased.people_lake.catalog, "club")
    assert {(row["table_name"], row["rows_removed"], row["rows_redacted"]) for row in rows} >= {
        ("raw.members", 2, 0),
        ("raw.orders", 3, 2),
        ("raw.other", 1, 0),
        ("metadata.quarantine", 2, 0),
        ("staging.members", 1, 0),
    }
    assert all(row["proved_at"] and row["files_searched"] for row in rows)
    assert "ann" not in str(rows).lower()
    subjects = rows[0]["subjects"]
    assert isinstance(subjects, list)
    assert is_concealed(ANN, subjects[0])
    assert not is_concealed(BOB, subjects[0])


def test_forget_is_idempotent_and_landing_continues(erased: Erased) -> None:
    people_lake = erased.people_lake
    ledger = read_ledger(people_lake.table("raw.members"))
    assert (ledger.offsets, ledger.checkpoint_id) == (erased.ledger.offsets, erased.ledger.checkpoint_id)
    assert ledger.writer != erased.ledger.writer, "an application that planned before can't commit files that are gone"
    rows, snapshot = people_lake.all_rows(), people_lake.table("raw.members").metadata.current_snapshot_id
    assert [hit.table for hit in people_lake.preview(ANN).affected if hit] == []
    assert people_lake.forget(ANN).holds
    assert people_lake.all_rows() == rows
    assert people_lake.table("raw.members").metadata.current_snapshot_id == snapshot
    people_lake.land("members", [member("member-0009", "new@example.com")])
    people_lake.build()
    assert "new@example.com" in {row["email"] for row in people_lake.rows("staging.members")}


HOSTILE = (
    "%@example.com",
    "_nn@example.com",
    "a*@example.com",
    ".*@.*",
    "x' OR '1'='1@example.com",
    'q"uo\\te@example.com',
    "\\E@x.io",
)


def test_forget_treats_an_email_as_a_literal(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    people_lake.land("members", [member("member-0001", ANN), member("member-0002", BOB)])
    before = people_lake.rows("raw.members")
    people_lake.land("members", [member("hostile", email, n=number) for number, email in enumerate(HOSTILE)])
    people_lake.land("orders", [order("order-0001", BOB), *(order("order-h", email, note="mine") for email in HOSTILE)])
    people_lake.land("orders", [order("order-g", BOB, note=f"to {email}.") for email in HOSTILE])
    affected = {str(hit.table): (hit.removed, hit.redacted) for hit in people_lake.preview(*HOSTILE).affected if hit}
    assert affected == {"raw.members": (7, 0), "raw.orders": (7, 7)}
    assert people_lake.forget(*HOSTILE).holds
    assert people_lake.rows("raw.members") == before
    assert {row["note"] for row in people_lake.rows("raw.orders")} == {None, "to [erased]."}


def test_forget_keeps_rows_of_an_earlier_topic_at_the_same_offsets(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    people_lake.land("members", [member("member-0001", ANN), member("member-0002", BOB)])
    people_lake.land("other", [other({"cart": [1]}), other({"cart": [2]})])
    people_lake.start_over("other")
    people_lake.land(
        "other", [other({"id": "member-0001", "email": ANN}, kind="redact", event_id="event-1"), other({"cart": [3]})]
    )
    start = read_ledger(people_lake.table("raw.other")).first_checkpoint
    assert start == 2
    assert people_lake.forget(requested=True).holds
    assert sorted(row["payload"] for row in people_lake.rows("raw.other")) == [
        '{"cart": [1]}',
        '{"cart": [2]}',
        '{"cart": [3]}',
    ]
    assert read_erased_offsets(people_lake.catalog, "club.other") == []
    assert read_erased_offsets(people_lake.catalog, f"club.other@{start}") == [(0, 0)]


def test_forget_carries_out_and_erases_requests(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    fill(people_lake)
    people_lake.land(
        "other",
        [
            other({"id": "member-0001", "email": ANN, "orders": ["order-0004"]}, kind="redact", event_id="event-1"),
            other({"id": "member-7777", "email": None}, kind="redact", event_id="event-2"),
        ],
    )
    preview = people_lake.preview(requested=True)
    assert [request.id for request in preview.requests] == ["event-1", "event-2"]
    assert people_lake.forget(requested=True).holds
    assert [row["type"] for row in people_lake.rows("raw.other")] == ["cart"]
    assert {row["id"] for row in people_lake.rows("raw.orders")} == {"order-0003", "order-0006"}, (
        "the order that was named went too"
    )
    assert people_lake.preview(requested=True).requests == ()
    assert read_erasures(people_lake.catalog, "club")[0]["request_ids"] == ["event-1", "event-2"]


def test_forget_erases_no_person_for_a_repeated_request(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    fill(people_lake)
    request = other({"id": "member-0001", "email": ANN, "orders": []}, kind="redact", event_id="event-1")
    people_lake.land("other", [request])
    assert people_lake.forget(requested=True).holds
    people_lake.land("members", [member("member-0001", ANN)])  # she came back
    people_lake.land("other", [request])  # and the old request is sent again
    preview = people_lake.preview(requested=True)
    assert (preview.persons, preview.repeated) == ((), ("event-1",))
    assert people_lake.forget(requested=True).holds
    assert [row["email"] for row in people_lake.rows("raw.members")].count(ANN) == 1
    assert "redact" not in [row["type"] for row in people_lake.rows("raw.other")], "the request itself names her, so it goes"
    assert people_lake.preview(requested=True).requests == ()


def test_forget_keeps_rows_of_others_with_a_shared_value(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    people_lake.land(
        "members",
        [member("member-0001", ANN, phone="+1 555 0100 999"), member("member-0002", BOB, phone="+1 555 0100 999")],
    )
    people_lake.build()
    preview = people_lake.preview(ANN)
    assert preview.persons[0].shared == ("+1 555 0100 999",)
    stranger = identify(emails=["carl@example.com"], phones=["+1 555 0100 999"])
    assert not any(preview_erasure(people_lake.session(), [stranger], requested=False).affected), (
        "what a stranger is said to have is others'"
    )
    assert people_lake.forget(ANN).holds
    assert [row["email"] for row in people_lake.rows("raw.members")] == [BOB]


def test_forget_refuses_an_email_of_several_persons(spark: SparkSession, tmp_path: Path) -> None:
    people_lake = PeopleLake(tmp_path, spark, PEOPLE)
    people_lake.land("members", [member("member-0001", ANN), member("member-0002", ANN)])
    people_lake.build()
    with pytest.raises(ErasureError, match="2 persons"):
        people_lake.preview(ANN)
    people_lake.forget(ANN, ids=[("club", "member-0002")])
    assert [row["id"] for row in people_lake.rows("raw.members")] == ["member-0001"]
