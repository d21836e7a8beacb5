"""A lake for the benchmark of fuzzy entities: one raw table of labelled persons, and the index on top."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.person_lake import append_raw
from headrace.build.build import Built
from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.sessions.building import build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.fuzzy import Fuzzy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INDEX = "index_fuzzy"
_PIPELINE = "fuzzy_lake"
_SCHEMA = """record STRING, first_name STRING, last_name STRING, born_on DATE, postcode STRING, birth_place STRING,
    occupation STRING, updated_at TIMESTAMP"""
_TABLE = """/*
kind: entities
keys: [record]
sequence_by: updated_at
match:
  record_normalized: {from: record, as: exact}
fuzzy:
  compare: {first_name: name, last_name: name, born_on: date, postcode: exact, birth_place: name, occupation: exact}
  block_on: [[first_name, last_name], [last_name, postcode], [born_on], [postcode, first_name], [last_name, birth_place]]
*/
SELECT record, first_name, last_name, born_on, postcode, birth_place, occupation, updated_at FROM bench.raw_persons"""


class FuzzyLake:
    """A lake of its own in a folder, with one table of entities that compares records with the default settings."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        home = folder / "pipelines" / _PIPELINE
        stream = "  persons: {topic: persons, format: json, schema: schemas/person.sql, table: bench.raw_persons}\n"
        files = {
            "pipeline.yml": f"name: {_PIPELINE}\nabout: What the benchmark builds.\nnamespace: bench\nstreams:\n{stream}",
            "schemas/person.sql": _SCHEMA,
            f"semantic/{INDEX}.sql": _TABLE,
        }
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(settings)
        pipeline: Pipeline = load_pipeline(_PIPELINE, environ={}, folder=folder)
        for target in pipeline.streams:
            ensure_table(
                self.catalog, target.table, columns=landed_columns(target), location=table_location(settings, target.table)
            )
        self.lake: Lake = open_lake(settings, pipeline, spark)

    @property
    def fuzzy(self) -> Fuzzy:
        """The setting of the table."""
        (table,) = self.lake.pipeline.tables
        assert table.fuzzy is not None
        return table.fuzzy

    def land(self, records: pl.DataFrame) -> None:
        rows = records.drop("person").with_columns(
            pl.lit(1_767_225_600_000_000).cast(pl.Datetime("us", "UTC")).alias("updated_at")
        )
        append_raw(
            self.catalog, "bench.raw_persons", rows.to_arrow(compat_level=pl.CompatLevel.oldest()), time_column="updated_at"
        )

    def refresh(self) -> Built:
        """Build the whole table, as `headrace build --full-refresh` does in an application that runs already."""
        outcome = build(self.lake, table=INDEX, full_refresh=True)[-1]
        if outcome.error:
            raise outcome.error
        assert outcome.built is not None
        return outcome.built

    def entities(self) -> pl.DataFrame:
        """Return which entity each record is of."""
        return pl.DataFrame(self.catalog.load_table(f"bench.{INDEX}").scan(selected_fields=("record", "entity_id")).to_arrow())
