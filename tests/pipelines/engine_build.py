"""A pipeline's tables as the engine builds them, round after round, from raw rows that are appended as if they had landed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.serving.sql.query import run_query
from headrace.sessions.building import build, open_lake
from headrace.settings import load_settings
from headrace.sources.encode import encoder_of
from headrace.spec import Pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import BUILD_ID, STATE
from headrace.spec.model.pipeline import Stream
from tests.pipelines.plain_build import landed_rows
from tests.pipelines.test_payments_generators import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EngineBuild:
    """A lake of a pipeline's own. Event i of a stream is in partition i modulo their number, whatever the round it came in."""

    def __init__(self, folder: Path, spark: SparkSession, pipeline: Pipeline) -> None:
        self._settings = load_settings(flags={}, environ={}, folder=folder)
        self._catalog = open_catalog(self._settings)
        self._pipeline = pipeline
        self._sent = {stream.name: 0 for stream in pipeline.streams}
        for stream in pipeline.streams:
            ensure_table(
                self._catalog,
                stream.table,
                columns=landed_columns(stream),
                partition_by=stream.partition_by,
                location=table_location(self._settings, stream.table),
            )
        self._lake = open_lake(self._settings, pipeline, spark)

    @property
    def lake(self) -> Lake:
        return self._lake

    def land_and_build(self, events: Mapping[str, Sequence[Row]]) -> None:
        """Append each stream's events as one checkpoint and build all tables, none of which may fail."""
        for stream in self._pipeline.streams:
            if events.get(stream.name):
                self._land(stream, events[stream.name])
        self.build()

    def land_messages(self, messages: Mapping[str, Sequence[bytes]]) -> None:
        """Append each stream's messages as one checkpoint."""
        for stream in self._pipeline.streams:
            if messages.get(stream.name):
                self._append(stream, messages[stream.name])

    def build(self, *, full_refresh: bool = False) -> None:
        for outcome in build(self._lake, full_refresh=full_refresh):
            assert (outcome.error, outcome.because_of) == (None, None)

    def rows(self, table: str) -> list[Row]:
        """Return a table's rows, without the builds that wrote them."""
        name = next(str(candidate.table) for candidate in self._pipeline.tables if candidate.table.name == table)
        stored = self._catalog.load_table(name).scan().to_arrow()
        return list(stored.drop_columns([column for column in (BUILD_ID, STATE) if column in stored.column_names]).to_pylist())

    def ask(self, sql: str) -> list[Row]:
        """Return what the lake answers to a query, as `headrace query` does."""
        return list(run_query(self._catalog, sql).to_pylist())

    def _land(self, stream: Stream, events: Sequence[Row]) -> None:
        encode = encoder_of(stream)
        self._append(stream, [encode(event) for event in events])

    def _append(self, stream: Stream, events: Sequence[bytes]) -> None:
        table = self._catalog.load_table(str(stream.table))
        planned, first = read_ledger(table), self._sent[stream.name]
        rows = landed_rows(stream, events, first=first, checkpoint_id=planned.checkpoint_id + 1)
        files = TableFiles(
            TableFormat(table.schema(), table.spec()), folder=f"{table.location()}/output", name=uuid.uuid4().hex
        )
        files.write(rows)
        sent, count = first + len(events), stream.partitions
        self._sent[stream.name] = sent
        offsets = {partition: (sent - partition + count - 1) // count for partition in range(count)}
        new = Ledger(planned.checkpoint_id + 1, offsets, writer=str(uuid.uuid4()))
        append_checkpoint(self._catalog, table, files=files.close(), planned=planned, new=new)
