"""Describe the reads of a build for its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.build.growth import columns_landed
from headrace.build.local_tables import MOST_ROWS
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.schema.added_columns import added_columns
from headrace.iceberg.schema.columns import spec_columns
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column

Role = Literal["driver", "lookup", "itself"]


@dataclass(frozen=True)
class Read:
    """A build's read of a table with `rows` rows.

    `changed` is the number of rows added or changed since the last build, or None if changes of the table start no build. Other
    rows are looked up by `columns`, which equal `values`; or `whole` is the reason why all of them are needed. A read without
    either needs only changed rows. A table that is `built_first` by the same run will have more changes. If more than `most`
    rows are needed whole, the build uses scans.
    """

    table: TableName
    role: Role
    rows: int
    changed: int | None = None
    columns: tuple[str, ...] = ()
    values: str = ""
    whole: str = ""
    most: int = MOST_ROWS
    built_first: bool = False

    @property
    def is_too_large(self) -> bool:
        return bool(self.whole) and self.rows > self.most


@dataclass(frozen=True)
class StoredColumns:
    """The columns of raw and built tables, as readers see them."""

    columns: Mapping[TableName, tuple[Column, ...]]

    @classmethod
    def of(cls, catalog: Catalog, pipeline: Pipeline) -> StoredColumns:
        built = {layer.table: load_table(catalog, layer.table) for layer in pipeline.tables}
        known = {name: _query_columns(table) for name, table in built.items() if table is not None}
        return cls({**columns_landed(catalog, pipeline), **known})

    def has_inputs(self, table: LayerTable) -> bool:
        """Return whether the columns of all inputs of a table are known."""
        return all(name in self.columns for name in table.inputs)


def _query_columns(table: Table) -> tuple[Column, ...]:
    added = added_columns(table)
    return tuple(column for column in spec_columns(table.schema()) if column.name not in added)
