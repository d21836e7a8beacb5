"""A small lake with people: three raw tables that a test fills row by row, and downstream tables of several kinds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, load_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.metadata.erasures import ERASURES
from headrace.iceberg.metadata.quarantine import QUARANTINE, flush_quarantine, open_quarantine
from headrace.iceberg.rows.filters import column_is
from headrace.kafka.topics import TopicIdentity
from headrace.landing.plan import Bounds
from headrace.landing.replaced_topics import accept
from headrace.landing.topic_choice import ReplacedTopic
from headrace.operations.erase.forgetting import (
    ErasurePreview,
    ErasureSession,
    Proof,
    begin_erasure,
    finish_erasure,
    preview_erasure,
    unfinished_erasures,
)
from headrace.operations.erase.identifiers import identify
from headrace.sessions.building import build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from tests.support.folders import write_files

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

PEOPLE = ("staging/people.sql",)
"""The minimum of tables that resolves persons."""

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)

FILES = {
    "pipeline.yml": """\
name: club
about: Members, what they buy, and what else was sent.
streams:
  members: {topic: club-members, format: json, schema: schemas/member.sql, table: raw.members}
  orders: {topic: club-orders, format: json, schema: schemas/order.sql, table: raw.orders, partition_by: [days(at)]}
  other: {topic: club-other, format: json, schema: schemas/other.sql, table: raw.other}
people:
  entities: staging.people
  streams:
    members: {email: email, phone: phone, ids: {club: id}}
    orders:
      email: [email, "get_json_object(buyer, '$.email')"]
      ids: {club: ["get_json_object(buyer, '$.id')", "concat('guest:', id)"], order: id}
    other: {text: payload}
  requests:
    - from: other
      where: type = 'redact'
      id: event_id
      email: get_json_object(payload, '$.email')
      ids: {club: "get_json_object(payload, '$.id')", order: "from_json(get_json_object(payload, '$.orders'), 'array<string>')"}
""",
    "schemas/member.sql": "id STRING, email STRING, phone STRING, name STRING, n INT, tags MAP<STRING, STRING>",
    "schemas/order.sql": "id STRING, email STRING, buyer STRING, note STRING, amount DECIMAL(10, 2), at TIMESTAMP, "
    "gift STRUCT<message: STRING, at: TIMESTAMP>",
    "schemas/other.sql": "payload STRING, type STRING, event_id STRING",
    "staging/people.sql": """/*
kind: full
*/
SELECT md5(id) AS entity_id, 'club' AS source, id AS source_id, max_by(email, n) AS email, lower(trim(max_by(email, n))) AS
email_normalized, max_by(phone, n) AS phone FROM raw.members GROUP BY id""",
    "staging/members.sql": """/*
keys: [id]
sequence_by: n
*/
SELECT id, email, name, n FROM raw.members""",
    "staging/names.sql": """/*
keys: [id]
sequence_by: n
stored_as_scd_type: 2
*/
SELECT id, name, n FROM raw.members""",
    "staging/orders.sql": """/*
frozen: [staging.members]
expect:
  someone paid: {that: amount > 0, on_failure: quarantine}
  there is a note: note IS NOT NULL
*/
SELECT o.id, o.email, o.note, o.amount, m.name FROM raw.orders AS o LEFT JOIN staging.members AS m ON m.email = o.email""",
    "marts/spent.sql": """/*
keys: [email]
*/
SELECT email, sum(amount) AS spent FROM staging.orders GROUP BY email""",
    "marts/named.sql": """/*
keys: [id]
*/
SELECT o.id, max(n.name) AS name FROM staging.orders AS o LEFT JOIN staging.names AS n ON n.name = o.name GROUP BY o.id""",
}


class PeopleLake:
    """A lake with the tables above, or only some of the layer tables, for speed."""

    def __init__(self, folder: Path, spark: SparkSession, tables: Sequence[str] | None = None) -> None:
        chosen = {
            name: text
            for name, text in FILES.items()
            if tables is None or name in tables or not name.startswith(("staging", "marts"))
        }
        write_files(folder / "pipelines/club", chosen)
        self.settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.pipeline: Pipeline = load_pipeline("club", environ={}, folder=folder)
        for stream in self.pipeline.streams:
            ensure_table(
                self.catalog,
                stream.table,
                columns=landed_columns(stream),
                partition_by=stream.partition_by,
                location=table_location(self.settings, stream.table),
                properties={"write.data.path": f"{table_location(self.settings, stream.table)}/output"},
            )
        self.lake = open_lake(self.settings, self.pipeline, spark)

    def land(self, stream: str, rows: Sequence[Mapping[str, Any]], *, refused: Sequence[bytes] = ()) -> None:
        """Append rows to a raw table, and bytes to the quarantine, as one checkpoint."""
        table = self.table(f"raw.{stream}")
        planned = read_ledger(table)
        offset = planned.offsets.get(0, 0)
        landed = [
            {**row, **_coordinates(f"club-{stream}", offset + index), "checkpoint_id": planned.checkpoint_id + 1}
            for index, row in enumerate(rows)
        ]
        bad = self._refuse(stream, refused, offset + len(rows), planned.checkpoint_id + 1) if refused else ()
        new = replace(
            planned,
            checkpoint_id=planned.checkpoint_id + 1,
            offsets={0: offset + len(rows) + len(refused)},
            writer=str(uuid.uuid4()),
            quarantine_files=tuple(bad),
        )
        table = append_checkpoint(
            self.catalog, table, files=_write(table, f"{table.location()}/output", landed), planned=planned, new=new
        )
        quarantine = open_quarantine(self.catalog, self.settings)
        flush_quarantine(self.catalog, quarantine, {f"club.{stream}": read_ledger(table)})

    def start_over(self, stream: str) -> None:
        """Record that the stream's topic was replaced, to land it from its beginning."""
        table = self.table(f"raw.{stream}")
        planned = read_ledger(table)
        accepted = accept(planned, TopicIdentity("new", "cluster"), {0: Bounds(0, 0)}, ReplacedTopic.RESTART)
        new = replace(accepted, checkpoint_id=planned.checkpoint_id + 1, writer=str(uuid.uuid4()))
        append_checkpoint(self.catalog, table, files=[], planned=planned, new=new)

    def leave_stray(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Write a data file that nothing refers to, like a task of a killed application, and return its path."""
        table = self.table(f"raw.{stream}")
        strays = [{**row, **_coordinates(f"club-{stream}", 0), "checkpoint_id": 99} for row in rows]
        return Path(_write(table, f"{table.location()}/output", strays)[0].file_path.removeprefix("file://"))

    def build(self) -> None:
        for outcome in build(self.lake):
            if outcome.error:
                raise outcome.error

    def session(self, since: float = 1e12) -> ErasureSession:
        assert self.pipeline.people is not None
        return ErasureSession(self.lake, self.pipeline.people, since)

    def preview(self, *emails: str, ids: Sequence[tuple[str, str]] = (), requested: bool = False) -> ErasurePreview:
        asked = [identify(emails=emails, ids=ids)] if emails or ids else []
        return preview_erasure(self.session(), asked, requested=requested)

    def forget(self, *emails: str, ids: Sequence[tuple[str, str]] = (), requested: bool = False) -> Proof:
        """Erase like the command does."""
        self.build()
        return self.finish(begin_erasure(self.session(), self.preview(*emails, ids=ids, requested=requested)))

    def finish(self, note: Any = None) -> Proof:
        """Finish an erasure, or the interrupted one."""
        resumed = note or unfinished_erasures(self.settings, self.pipeline)[0]
        return finish_erasure(self.session(), resumed, publish=lambda: None, report=lambda sentence: None)

    def table(self, name: str) -> Table:
        return self.catalog.load_table(name)

    def rows(self, name: str, *, without: Sequence[str] = ("_build_id", "_state")) -> list[dict[str, Any]]:
        stored = self.table(name).scan().to_arrow().to_pylist()
        shown_rows = [{key: value for key, value in row.items() if key not in without} for row in stored]
        return sorted(shown_rows, key=lambda row: json.dumps(row, default=str))

    def all_rows(self) -> dict[str, list[dict[str, Any]]]:
        names = [*(stream.table for stream in self.pipeline.streams), *(table.table for table in self.pipeline.tables)]
        return {str(name): self.rows(str(name)) for name in names}

    def refused(self) -> list[bytes]:
        return sorted(row["original_bytes"] for row in self.table(str(QUARANTINE)).scan().to_arrow().to_pylist())

    def _refuse(self, stream: str, values: Sequence[bytes], offset: int, checkpoint_id: int) -> list[str]:
        quarantine = open_quarantine(self.catalog, self.settings)
        rows = [
            {
                "stream": f"club.{stream}",
                "topic": f"club-{stream}",
                "partition": 0,
                "offset": offset + index,
                "timestamp": AT,
                "reason": "not JSON",
                "original_bytes": value,
                "checkpoint_id": checkpoint_id,
            }
            for index, value in enumerate(values)
        ]
        return [file.file_path for file in _write(quarantine, f"{quarantine.location()}/output", rows)]


def member(identity: str, email: str | None, **values: object) -> dict[str, Any]:
    return {"id": identity, "email": email, "phone": None, "name": f"name of {identity}", "n": 1, "tags": [], **values}


def order(identity: str, email: str | None, *, buyer: str | None = None, **values: object) -> dict[str, Any]:
    text = json.dumps({"id": buyer, "email": email}) if buyer else None
    return {
        "id": identity,
        "email": email,
        "buyer": text,
        "note": None,
        "amount": 5,
        "at": AT,
        "gift": {"message": None, "at": AT.replace(microsecond=123456)},
        **values,
    }


def other(payload: object, *, kind: str = "cart", event_id: str = "event") -> dict[str, Any]:
    return {"payload": json.dumps(payload), "type": kind, "event_id": event_id}


def _coordinates(topic: str, offset: int) -> dict[str, Any]:
    return {
        "_extra": None,
        "kafka_topic": topic,
        "kafka_partition": 0,
        "kafka_offset": offset,
        "kafka_timestamp": AT,
    }


def _write(table: Table, folder: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    files = TableFiles(TableFormat(table.schema(), table.spec()), folder=folder, name=uuid.uuid4().hex)
    if rows:
        files.write(pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema())))
    return list(files.close())


def read_erasures(catalog: Catalog, pipeline_name: str) -> list[dict[str, Any]]:
    """Return a pipeline's rows of `metadata.erasures`, oldest first."""
    table = load_table(catalog, ERASURES)
    if table is None:
        return []
    rows = table.scan(row_filter=column_is("pipeline_name", pipeline_name)).to_arrow()
    return list(rows.sort_by([("begun_at", "ascending"), ("table_name", "ascending")]).to_pylist())
