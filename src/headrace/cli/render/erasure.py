"""Render what an erasure would do and what it did, for a terminal and as JSON."""

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


def show_preview(console: Console, preview: ErasurePreview, *, as_json: bool) -> None:
    tables = [
        {"table": str(table.table), "rows": table.removed, "redacted": table.redacted} for table in preview.affected if table
    ]
    if as_json:
        records = [dict(record) for person in preview.persons for record in person.records]
        alike = [dict(record) for person in preview.persons for record in person.alike]
        requests = [request.id for request in preview.requests]
        repeated = list(preview.repeated)
        print_json({"records": records, "alike": alike, "tables": tables, "requests": requests, "repeated": repeated})
        return
    if preview.requests:
        console.print(f"{count_of(len(preview.requests), 'request')} pending", highlight=False)
    if preview.repeated:
        count = count_of(len(preview.repeated), "request")
        console.print(f"{count} repeated after an erasure: only the rows of the requests are erased", highlight=False)
    for person in preview.persons:
        for record in person.records[:_FEW]:
            label = " ".join(str(record[name]) for name in ("source", "source_id", "email", "phone") if record.get(name))
            console.print(f"  {label}", highlight=False, markup=False)
        if len(person.records) > _FEW:
            console.print(f"  and {len(person.records) - _FEW} more records", highlight=False)
        for record in person.alike[:_FEW]:
            label = f"{record['source']}:{record['source_id']}"
            note = f"is similar and is not erased; if it belongs to the person, add: --id {label}"
            console.print(f"  {label} {note}", highlight=False, markup=False)
        if person.shared:
            others = "shared with other people, so no row is erased because of it alone"
            console.print(f"  {', '.join(person.shared)}: {others}", highlight=False, markup=False)
    if not tables:
        console.print("no landed row belongs to the person", highlight=False)
        return
    table = Table("table")
    for column in ("rows to remove", "rows to redact"):
        table.add_column(column, justify="right")
    for row in preview.affected:
        if row:
            table.add_row(data_text(str(row.table)), f"{row.removed:,}", f"{row.redacted:,}")
    console.print(table)
    console.print("Downstream tables are rebuilt, and old snapshots of these tables are removed.", highlight=False)


def show_proof(console: Console, settings: Settings, proofs: Sequence[Proof], *, as_json: bool) -> None:
    topics = describe_retention(settings, sorted({topic for proof in proofs for topic in proof.topics}))
    if as_json:
        print_json([{**_as_json(proof), "topics": topics} for proof in proofs])
        return
    if not proofs:
        console.print("no person to erase", highlight=False)
    for proof in proofs:
        table = Table("table")
        for column in ("rows removed", "rows redacted"):
            table.add_column(column, justify="right")
        for erased in proof.note.tables:
            table.add_row(erased.table_name, f"{erased.rows_removed:,}", f"{erased.rows_redacted:,}")
        console.print(table)
        for ref in proof.dropped_refs:
            console.print(f"dropped a branch or tag that kept old rows: {ref}", highlight=False, markup=False)
        for hit in proof.hits[:_FEW]:
            where = f"{hit.table}, column {hit.column}, {count_of(hit.count, 'time')}: {hit.uri}"
            console.print(f"still found: {where}", highlight=False, markup=False, soft_wrap=True)
        verdict = "the person is in none" if proof.holds else f"the person is in {len({hit.uri for hit in proof.hits})} of them"
        counts = f"{count_of(proof.files_searched, 'file')} searched, {proof.files_deleted:,} deleted"
        console.print(f"{counts}: {verdict} (erasure {proof.note.erasure_id})", highlight=False, soft_wrap=True)
    if proofs:
        console.print("\nNot erased: your backups, and Kafka until its retention ends", style="bold", highlight=False)
        for topic, retention in topics.items():
            console.print(f"  topic {topic}: {retention}", highlight=False, markup=False)


def _as_json(proof: Proof) -> dict[str, object]:
    return {
        "erasure_id": proof.note.erasure_id,
        "holds": proof.holds,
        "request_ids": list(proof.note.request_ids),
        "tables": [
            {"table": table.table_name, "rows_removed": table.rows_removed, "rows_redacted": table.rows_redacted}
            for table in proof.note.tables
        ],
        "files_searched": proof.files_searched,
        "files_deleted": proof.files_deleted,
        "dropped_refs": list(proof.dropped_refs),
        "found": [{"table": hit.table, "file": hit.uri, "column": hit.column, "count": hit.count} for hit in proof.hits],
    }
