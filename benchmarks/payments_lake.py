"""The payments pipeline with raw tables that are filled without Kafka: events are decoded and committed as landing does it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table

from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.kafka.records import Messages
from headrace.landing.decode import decoder_of
from headrace.landing.rows import split_bad_rows
from headrace.sessions.building import Outcome, build, open_lake
from headrace.settings import Settings, load_settings
from headrace.sources.encode import encoder_of
from headrace.sources.generate import events_of
from headrace.sources.generators import Rate
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEED = 16
_AT_ONCE = 100_000


class RawStream:
    """One stream of the pipeline: its events in order, and the raw table that takes them."""

    def __init__(self, settings: Settings, stream: Stream, *, per_second: float) -> None:
        self.stream = stream
        self.catalog = open_catalog(settings)
        self.table: Table = ensure_table(
            self.catalog,
            stream.table,
            columns=landed_columns(stream),
            partition_by=stream.partition_by,
            location=table_location(settings, stream.table),
        )
        self._format = TableFormat(self.table.schema(), self.table.spec())
        self._decoder = decoder_of(stream, self._format.arrow_schema)
        self._values = self._encoded(Rate(per_second=per_second, seed=_SEED))

    def _encoded(self, rate: Rate) -> Iterator[bytes]:
        encode = encoder_of(self.stream)
        return (encode(event) for event in events_of(self.stream, rate))

    def land(self, count: int) -> None:
        """Append the next `count` events to the raw table, in checkpoints of at most 100,000."""
        while count > 0:
            values = list(islice(self._values, min(count, _AT_ONCE)))
            self._commit(values)
            count -= len(values)

    def _commit(self, values: list[bytes]) -> None:
        planned = read_ledger(self.table)
        checkpoint, first = planned.checkpoint_id + 1, planned.offsets.get(0, 0)
        offsets = pa.array(range(first, first + len(values)), pa.int64())
        places = pa.table(
            {
                "partition": pa.repeat(pa.scalar(0, pa.int32()), len(values)),
                "offset": offsets,
                "timestamp": pa.repeat(pa.scalar(1_767_225_600_000, pa.int64()), len(values)),
            }
        )
        messages = Messages(self.stream.topic, list(values), places)
        rows, _ = split_bad_rows(
            messages,
            decoder=self._decoder,
            stream=self.stream,
            schema=self._format.arrow_schema,
            checkpoint_id=checkpoint,
        )
        files = TableFiles(self._format, folder=f"{self.table.location()}/output", name=uuid.uuid4().hex)
        files.write(rows)
        new = Ledger(checkpoint, {0: first + len(values)}, writer=str(uuid.uuid4()))
        self.table = append_checkpoint(self.catalog, self.table, files=files.close(), planned=planned, new=new)


class PaymentsLake:
    """A lake of its own in a folder. `history` charges come over `days` days, the other streams in proportion."""

    def __init__(self, folder: Path, *, history: int, days: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = load_settings(flags={}, environ={}, folder=folder)
        self.pipeline: Pipeline = load_pipeline("payments", environ={}, folder=folder)
        streams = self.pipeline.streams
        rate = Rate(per_second=history / (days * 86_400), count=history)
        shares = {stream.name: rate.in_proportion(stream, among=streams) for stream in streams}
        self._history = {name: share.count or 0 for name, share in shares.items()}
        self.raw = {
            stream.name: RawStream(self.settings, stream, per_second=float(str(shares[stream.name].per_second)))
            for stream in streams
        }

    @property
    def events(self) -> int:
        """How many events the history has, of all streams."""
        return sum(self._history.values())

    def fill(self) -> None:
        for name, count in self._history.items():
            self.raw[name].land(count)

    def land_charges(self, count: int) -> None:
        self.raw["charges"].land(count)

    def open(self, spark: SparkSession) -> Lake:
        return open_lake(self.settings, self.pipeline, spark)


def build_all(lake: Lake, *, full_refresh: bool = False) -> tuple[Outcome, ...]:
    """Build every table; raise the first error."""
    outcomes = build(lake, full_refresh=full_refresh)
    for outcome in outcomes:
        if outcome.error:
            raise outcome.error
    return outcomes
