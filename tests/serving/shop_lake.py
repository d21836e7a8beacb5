"""A lake with the shop's tables, created without Spark or Kafka, with the commits of landing and builds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.app.watching import Watch
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import BuildLedger, CheckedExpectation, read_build
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.metadata.quarantine import open_quarantine
from headrace.serving.web.context import WebContext
from headrace.settings import load_settings
from headrace.spec import load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from tests.support.shop import write_shop

STAGED = TableName("staging", "charges")
_STAGED_COLUMNS = (
    *(Column(name, Primitive("string")) for name in ("id", "country")),
    Column(BUILD_ID, Primitive("long")),
)


class ShopLake:
    """`land` and `build` commit rows with their ledger entries; `context` is the WebContext of an application."""

    def __init__(self, folder: Path, *, environ: Mapping[str, str] | None = None) -> None:
        write_shop(folder)
        self.settings = load_settings(flags={}, environ=environ or {}, folder=folder)
        self.pipeline = load_pipeline("shop", environ={}, folder=folder)
        self.watch = Watch(self.settings, [self.pipeline])

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, created by the first write."""
        return open_catalog(self.settings)

    @property
    def context(self) -> WebContext:
        return WebContext((self.pipeline,), self.watch.figures, self.watch.catalog, self.watch.topics)

    def land_in_turn(self, first: Sequence[str], second: Sequence[str]) -> Snapshot:
        """Land twice, and return the snapshot of the first landing, which has an earlier time than the second."""
        self.land(first)
        snapshot = self.catalog.load_table("raw.charges").current_snapshot()
        assert snapshot is not None
        time.sleep(0.002)
        self.land(second)
        return snapshot

    def land(self, ids: Sequence[str], *, bad: Sequence[str] = (), country: str = "DE") -> None:
        stream = self.pipeline.streams[0]
        table = self._open(stream.table, landed_columns(stream))
        entry = read_ledger(table)
        first = entry.offsets.get(0, 0)
        rows = [
            {"id": charge_id, "country": country, "kafka_topic": stream.topic, "kafka_partition": 0, "kafka_offset": first + at}
            for at, charge_id in enumerate(ids)
        ]
        end = first + len(ids) + len(bad)
        new = replace(
            entry,
            checkpoint_id=entry.checkpoint_id + 1,
            offsets={0: end},
            quarantined=entry.quarantined + len(bad),
            seconds=0.25,
        )
        _commit(table, rows, ledger.KEY, new)
        refused = [
            {
                "stream": "shop.charges",
                "topic": stream.topic,
                "partition": 0,
                "offset": first + len(ids) + at,
                "timestamp": datetime.now(timezone.utc),
                "reason": value,
                "original_bytes": b"{",
                "checkpoint_id": 1,
            }
            for at, value in enumerate(bad)
        ]
        if refused:
            quarantine = open_quarantine(self.catalog, self.settings)
            quarantine.append(pa.Table.from_pylist(refused, schema=schema_to_pyarrow(quarantine.schema())))

    def build(self, ids: Sequence[str], *, failed: int = 0) -> None:
        """Build staging.charges from these rows, of which `failed` have no address."""
        table = self._open(STAGED, _STAGED_COLUMNS)
        entry = read_build(table)
        source = self.catalog.load_table("raw.charges")
        ledger_entry = read_ledger(source)
        snapshot = source.current_snapshot()
        read = build_ledger.InputState(snapshot.snapshot_id if snapshot else None, ledger_entry.checkpoint_id, 0, 0)
        from headrace.build.definition import definition_of

        layer = next(table for table in self.pipeline.tables if table.table == STAGED)
        build_id = entry.build_id + 1
        new = replace(
            entry,
            build_id=build_id,
            changed_in=build_id,
            definition=definition_of(layer).digest,
            reads={"raw.charges": read},
            rows_processed=len(ids) + failed,
            rows_written=len(ids),
            expectations=(
                CheckedExpectation("the amount is positive", "drop", len(ids), 0),
                CheckedExpectation("the address is known", "warn", len(ids), failed, '{"id":"e1"}' if failed else None),
            ),
            built_at_us=time.time_ns() // 1_000,
            seconds=1.5,
            phases=BuildPhases(fetch=0.012, query=0.3, write=0.02, commit=0.021),
        )
        rows = [{"id": charge_id, "country": "DE", BUILD_ID: build_id} for charge_id in ids]
        _commit(table, rows, build_ledger.KEY, new)

    def _open(self, name: TableName, columns: tuple[Column, ...]) -> Table:
        return ensure_table(self.catalog, name, columns=columns, location=table_location(self.settings, name))


def _commit(table: Table, rows: Sequence[dict[str, object]], key: str, entry: Ledger | BuildLedger) -> None:
    properties = {key: entry.to_json()}
    with table.transaction() as transaction:
        arrow = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema()))
        transaction.append(arrow, snapshot_properties=properties)
        transaction.set_properties(properties)
