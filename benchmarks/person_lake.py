"""A lake for the benchmark of entities: a raw table of each source that is filled without Kafka, and the index on top."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog

from benchmarks.person_rows import SOURCES
from headrace.build.build import Built
from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.sessions.building import build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE = "person_lake"
_SCHEMA = """source_id STRING, email STRING, phone STRING, first_name STRING, last_name STRING, created_at TIMESTAMP,
    updated_at TIMESTAMP"""
_BRANCH = """SELECT '{source}' AS source, source_id, email, phone, first_name, last_name, created_at, updated_at
FROM bench.raw_{source}"""
_INDEX = """/*
kind: entities
keys: [source, source_id]
sequence_by: updated_at
oldest_by: created_at
match:
  email_normalized: {{from: email, as: {email}}}
  phone_normalized: {{from: phone, as: {phone}}}
*/
{query}"""
EXACT, NORMALISED = "index_exact", "index_normalised"


class PersonLake:
    """A lake of its own in a folder, with two indexes: one takes the values as they are, one normalises them."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        home = folder / "pipelines" / _PIPELINE
        streams = "".join(
            f"  {source}: {{topic: people-{source}, format: json, schema: schemas/person.sql, table: bench.raw_{source}}}\n"
            for source in SOURCES
        )
        query = "\nUNION ALL\n".join(_BRANCH.format(source=source) for source in SOURCES)
        files = {
            "pipeline.yml": f"name: {_PIPELINE}\nabout: What the benchmark builds.\nnamespace: bench\nstreams:\n{streams}",
            "schemas/person.sql": _SCHEMA,
            f"semantic/{EXACT}.sql": _INDEX.format(email="exact", phone="exact", query=query),
            f"semantic/{NORMALISED}.sql": _INDEX.format(email="email", phone="phone", query=query),
        }
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        self.settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.pipeline: Pipeline = load_pipeline(_PIPELINE, environ={}, folder=folder)
        for stream in self.pipeline.streams:
            location = table_location(self.settings, stream.table)
            ensure_table(self.catalog, stream.table, columns=landed_columns(stream), location=location)
        self.lake: Lake = open_lake(self.settings, self.pipeline, spark)

    def land(self, records: pl.DataFrame) -> None:
        """Append records to the raw tables of their sources, one checkpoint each."""
        for stream in self.pipeline.streams:
            mine = records.filter(pl.col("source") == stream.name).drop("source")
            rows = mine.to_arrow(compat_level=pl.CompatLevel.oldest())
            append_raw(self.catalog, f"bench.raw_{stream.name}", rows, time_column="updated_at")

    def build(self, name: str, *, full_refresh: bool = False) -> Built:
        """Build one index, as `headrace build --table` does in an application that runs already."""
        outcome = build(self.lake, table=name, full_refresh=full_refresh)[-1]
        if outcome.error:
            raise outcome.error
        if outcome.built is None:
            raise RuntimeError(f"there was nothing to build in {name}")
        return outcome.built

    def entities(self, name: str) -> pl.DataFrame:
        """Return which entity each record is of."""
        scan = self.catalog.load_table(f"bench.{name}").scan(selected_fields=("source", "source_id", "entity_id"))
        return pl.DataFrame(scan.to_arrow())


def append_raw(catalog: Catalog, name: str, rows: pa.Table, *, time_column: str) -> None:
    """Append rows to a raw table as one checkpoint, as if they had been landed from one partition."""
    raw = catalog.load_table(name)
    planned = read_ledger(raw)
    checkpoint, offset, count = planned.checkpoint_id + 1, planned.offsets.get(0, 0), rows.num_rows
    form = TableFormat(raw.schema(), raw.spec())
    given = {
        "kafka_topic": pa.repeat(name, count),
        "kafka_partition": pa.repeat(0, count),
        "kafka_offset": pa.array(range(offset, offset + count), pa.int64()),
        "kafka_timestamp": rows[time_column],
        "checkpoint_id": pa.repeat(checkpoint, count),
        **{column_name: rows[column_name] for column_name in rows.column_names},
    }
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(count, field.type)
        for field in form.arrow_schema
    ]
    files = TableFiles(form, folder=f"{raw.location()}/output", name=uuid.uuid4().hex)
    files.write(pa.Table.from_arrays(columns, schema=form.arrow_schema))
    new = Ledger(checkpoint, {0: offset + count}, writer=str(uuid.uuid4()))
    append_checkpoint(catalog, raw, files=files.close(), planned=planned, new=new)
