"""What a build reads of a table, in the words of a plan."""

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
    """What a build reads of a table that has so many `rows`.

    `changed` rows came or changed since the last build; None where that starts no build. Others are found by `columns`, which
    equal `values`; `whole` says why all of them are needed instead. A read without either needs only what changed. A table that
    is `built_first` by the same build has more changes then. With more than `most` rows that are needed whole, a build runs on
    scans.
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
    """The columns that raw tables get and built tables have, as their readers see them."""

    columns: Mapping[TableName, tuple[Column, ...]]

    @classmethod
    def of(cls, catalog: Catalog, pipeline: Pipeline) -> StoredColumns:
        built = {each.table: load_table(catalog, each.table) for each in pipeline.tables}
        known = {name: _query_columns(table) for name, table in built.items() if table is not None}
        return cls({**columns_landed(catalog, pipeline), **known})

    def has_inputs(self, table: LayerTable) -> bool:
        """Return whether the columns of all inputs of a table are known."""
        return all(name in self.columns for name in table.inputs)


def _query_columns(table: Table) -> tuple[Column, ...]:
    added = added_columns(table)
    return tuple(column for column in spec_columns(table.schema()) if column.name not in added)
