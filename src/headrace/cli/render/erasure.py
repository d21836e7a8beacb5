"""What an erasure would do and what it did, on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.operations.erase.retention import describe_retention
from headrace.plurals import count_of
from headrace.serving.values import print_json
from headrace.terminal import data_text

if TYPE_CHECKING:
    from headrace.operations.erase.forgetting import ErasurePreview, Proof
    from headrace.settings import Settings

_FEW = 20


def show_look(console: Console, looked: ErasurePreview, *, as_json: bool) -> None:
    tables = [{"table": str(each.table), "rows": each.removed, "redacted": each.redacted} for each in looked.affected if each]
    if as_json:
        records = [dict(record) for person in looked.persons for record in person.records]
        alike = [dict(record) for person in looked.persons for record in person.alike]
        requests = [each.id for each in looked.requests]
        repeated = list(looked.repeated)
        print_json({"records": records, "alike": alike, "tables": tables, "requests": requests, "repeated": repeated})
        return
    if looked.requests:
        console.print(f"{len(looked.requests)} requests wait", highlight=False)
    if looked.repeated:
        count = count_of(len(looked.repeated), "request")
        console.print(f"{count} came again after an erasure answered them: only their own rows go", highlight=False)
    for person in looked.persons:
        for record in person.records[:_FEW]:
            told = " ".join(str(record[name]) for name in ("source", "source_id", "email", "phone") if record.get(name))
            console.print(f"  {told}", highlight=False, markup=False)
        if len(person.records) > _FEW:
            console.print(f"  and {len(person.records) - _FEW} records more", highlight=False)
        for record in person.alike[:_FEW]:
            told = f"{record['source']}:{record['source_id']}"
            console.print(f"  {told} only looks alike, and stays; if it is theirs: --id {told}", highlight=False, markup=False)
        if person.shared:
            others = "others have it too, so no row goes because of it alone"
            console.print(f"  {', '.join(person.shared)}: {others}", highlight=False, markup=False)
    if not tables:
        console.print("no landed row is theirs", highlight=False)
        return
    table = Table("table")
    for column in ("rows that go", "rows of others that name them"):
        table.add_column(column, justify="right")
    for each in looked.affected:
        if each:
            table.add_row(data_text(str(each.table)), f"{each.removed:,}", f"{each.redacted:,}")
    console.print(table)
    console.print("What was made of these rows is made anew. Old snapshots of the same tables go.", highlight=False)


def show_proof(console: Console, settings: Settings, proofs: Sequence[Proof], *, as_json: bool) -> None:
    topics = describe_retention(settings, sorted({topic for proof in proofs for topic in proof.topics}))
    if as_json:
        print_json([{**_as_json(proof), "topics": topics} for proof in proofs])
        return
    if not proofs:
        console.print("nobody was to be erased", highlight=False)
    for proof in proofs:
        table = Table("table")
        for column in ("rows removed", "rows redacted"):
            table.add_column(column, justify="right")
        for each in proof.note.tables:
            table.add_row(each.table_name, f"{each.rows_removed:,}", f"{each.rows_redacted:,}")
        console.print(table)
        for ref in proof.dropped_refs:
            console.print(f"a branch or tag that kept old rows is gone: {ref}", highlight=False, markup=False)
        for hit in proof.hits[:_FEW]:
            where = f"{hit.table}, column {hit.column}, {hit.count:,} times: {hit.uri}"
            console.print(f"still there: {where}", highlight=False, markup=False, soft_wrap=True)
        found = "the person is in none" if proof.holds else f"the person is in {len({hit.uri for hit in proof.hits})}"
        counts = f"{proof.files_searched:,} files searched, {proof.files_deleted:,} deleted"
        console.print(f"{counts}: {found} (erasure {proof.note.erasure_id})", highlight=False, soft_wrap=True)
    if proofs:
        console.print("\nNot reached: your backups, and Kafka until it forgets by itself", style="bold", highlight=False)
        for topic, kept in topics.items():
            console.print(f"  topic {topic}: {kept}", highlight=False, markup=False)


def _as_json(proof: Proof) -> dict[str, object]:
    return {
        "erasure_id": proof.note.erasure_id,
        "holds": proof.holds,
        "request_ids": list(proof.note.request_ids),
        "tables": [
            {"table": each.table_name, "rows_removed": each.rows_removed, "rows_redacted": each.rows_redacted}
            for each in proof.note.tables
        ],
        "files_searched": proof.files_searched,
        "files_deleted": proof.files_deleted,
        "dropped_refs": list(proof.dropped_refs),
        "found": [{"table": hit.table, "file": hit.uri, "column": hit.column, "count": hit.count} for hit in proof.hits],
    }
