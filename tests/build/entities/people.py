"""A small lake of people from several sources, with helpers to send records and read entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.build.layer_lake import START, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """source STRING, source_id STRING, email STRING, phone STRING, country STRING, name STRING, op STRING, n INT,
    created_at TIMESTAMP"""
STAGED = """/*
keys: [source, source_id]
sequence_by: n
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT source, source_id, email, phone, country, name, op, n, created_at FROM pond.events"""
_INDEX = """/*
kind: entities
keys: [source, source_id]
sequence_by: n
oldest_by: created_at
match:
  email_normalized: {{from: email, as: email, max_records: 4}}
  phone_normalized: {{from: phone, as: phone, region: country, max_records: 3}}
except_column_list: [country]
*/
SELECT source, source_id, email, phone, name, country, n, created_at FROM {}"""
TABLES = {
    "a/staged.sql": STAGED,
    "b/entity_index.sql": _INDEX.format("pond.staged"),
    "b/direct_index.sql": _INDEX.format("pond.events WHERE op <> 'd'"),
    "c/sizes.sql": """/*
keys: [entity_id]
*/
SELECT entity_id, count(*) AS records, count(DISTINCT source) AS sources FROM pond.entity_index GROUP BY entity_id""",
}


@dataclass(frozen=True)
class Record:
    """A person as one source knows them: `n` is the version, `day` when the source first heard of them."""

    source: str
    source_id: str
    email: str | None = None
    phone: str | None = None
    country: str | None = "US"
    name: str | None = None
    op: str = "u"
    n: int = 1
    day: int = 1

    def row(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("source", "source_id", "email", "phone", "country", "name", "op", "n")}
        return {**values, "created_at": START + timedelta(days=self.day)}


class People(LayerLake):
    """A pond whose events are records of people."""

    def __init__(self, folder: Path, spark: SparkSession, tables: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, spark, {"schemas/event.sql": SCHEMA, **(TABLES if tables is None else tables)})

    def send(self, *records: Record) -> dict[str, dict[str, Any]]:
        """Land and build, and return the index."""
        self.land(records)
        self.build()
        return self.index()

    def index(self, table: str = "entity_index") -> dict[str, dict[str, Any]]:
        """Return the rows of an index by the records' keys, such as shop:1."""
        rows = self.catalog.load_table(f"pond.{table}").scan().to_arrow().to_pylist()
        return {f"{row['source']}:{row['source_id']}": row for row in rows}


def clusters(index: Mapping[str, Mapping[str, Any]]) -> set[frozenset[str]]:
    """Return which records are together, whatever the ids."""
    members_by_entity: dict[str, set[str]] = {}
    for key, row in index.items():
        members_by_entity.setdefault(row["entity_id"], set()).add(key)
    return {frozenset(members) for members in members_by_entity.values()}
