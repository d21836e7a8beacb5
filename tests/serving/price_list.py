"""A layer table whose builds tests write row by row without Spark, and the pipeline that publishes it to Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.ledgers.build import KEY, read_build
from headrace.iceberg.metadata.quarantine import open_quarantine
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import PostgresTable, TableName
from headrace.spec.model.types import Column, Primitive
from headrace.spec.model.types import Decimal as DecimalType
from tests.support.folders import write_files

NAME = TableName("shop", "prices")
DDL = "CREATE TABLE prices (id TEXT PRIMARY KEY, price NUMERIC(10, 2), changed TIMESTAMPTZ DEFAULT now())"
_FILES = {
    "pipeline.yml": """\
name: shop
about: prices that change
namespace: shop
streams:
  events: {topic: shop-events, format: json, schema: schemas/event.sql, table: shop.events}
serving:
  postgres:
    prices: {from: shop.prices, ddl: serving/prices.sql}
""",
    "schemas/event.sql": "id STRING NOT NULL, price DECIMAL(10,2), colour STRING, n BIGINT",
    "core/prices.sql": "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT id, price, colour, n FROM shop.events",
    "serving/prices.sql": DDL,
}
_COLUMNS = (Column("id", Primitive("string")), Column("price", DecimalType(10, 2)), Column("colour", Primitive("string")))


@dataclass
class PriceList:
    """Builds of `shop.prices`; `ddl` is the DDL of the table in Postgres."""

    folder: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_files(self.folder / "pipelines" / "shop", _FILES)

    @property
    def settings(self) -> Settings:
        return load_settings(flags={}, environ={"HEADRACE_HOME": str(self.folder / ".headrace")}, folder=self.folder)

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline("shop", environ={}, folder=self.folder)

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.settings)

    @property
    def published(self) -> PostgresTable:
        return self.pipeline.serving.postgres[0]

    def write_ddl(self, ddl: str) -> None:
        (self.folder / "pipelines" / "shop" / "serving" / "prices.sql").write_text(ddl, encoding="utf-8")

    def build(self, changed: Mapping[str, tuple[str, str] | None], *, rebuild: bool = False) -> None:
        """Commit a build that writes prices and colours by id; None deletes a row. With `rebuild` all rows are written."""
        location = table_location(self.settings, NAME)
        build_column = Column(BUILD_ID, Primitive("long"))
        table = ensure_table(self.catalog, NAME, columns=(*_COLUMNS, build_column), location=location)
        entry = read_build(table)
        number = entry.build_id + 1
        for key, value in changed.items():
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = {"id": key, "price": Decimal(value[0]), "colour": value[1], BUILD_ID: number}
        rows = [{**row, BUILD_ID: number} if rebuild else row for row in self.rows.values()]
        arrow = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema()))
        (table.overwrite if number > 1 else table.append)(arrow)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        generation = number if rebuild or number == 1 else entry.generation
        new = replace(
            entry,
            build_id=number,
            changed_in=number,
            generation=generation,
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number or 0,
        )
        with table.transaction() as transaction:
            transaction.set_properties({KEY: new.to_json()})

    def land_nothing(self) -> None:
        """Make the raw table and the quarantine, as landing an empty topic does."""
        stream = self.pipeline.streams[0]
        location = table_location(self.settings, stream.table)
        ensure_table(self.catalog, stream.table, columns=landed_columns(stream), location=location)
        open_quarantine(self.catalog, self.settings)


def ask(dsn: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []
