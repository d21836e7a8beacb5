"""How rows of a lookup are tied to rows of the tables that it is joined to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.spec.model.pipeline import TableName

TEXT = "::string"
"""At the end of a column's name: the column cast to STRING, which joins compare where keys have different types."""


@dataclass(frozen=True)
class JoinPath:
    """Rows of `table` matter only where `columns` equal `source_columns` of some row of `source`.

    Nulls never match unless `nulls_match`. A column that ends with `TEXT` is compared as text.
    """

    table: TableName
    columns: tuple[str, ...]
    source: TableName
    source_columns: tuple[str, ...]
    nulls_match: bool = False


Route = tuple[JoinPath, ...]
"""The paths from a lookup to a driver, through other lookups where it is joined to one of them."""

Follows = Mapping[TableName, tuple[Route, ...] | None]
"""The lookups whose changes a table follows, by the routes to its drivers; None: any change rebuilds all rows."""


def plain_column(column: str) -> str:
    """Return the column that a path's column is, or is cast from."""
    return column.removesuffix(TEXT)
