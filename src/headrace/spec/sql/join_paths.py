"""Join paths: the columns by which a lookup is joined to other tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.spec.model.pipeline import TableName

TEXT = "::string"
"""The suffix of a column that is cast to STRING, for joins of keys with different types."""


@dataclass(frozen=True)
class JoinPath:
    """Rows of `table` are only needed if their `columns` equal the `source_columns` of a row of `source`.

    Nulls match only with `nulls_match`. A column with the suffix `TEXT` is compared as text.
    """

    table: TableName
    columns: tuple[str, ...]
    source: TableName
    source_columns: tuple[str, ...]
    nulls_match: bool = False


Route = tuple[JoinPath, ...]
"""The paths from a lookup to a driver, possibly through other lookups."""

Follows = Mapping[TableName, tuple[Route, ...] | None]
"""The lookups whose changes a table follows, with their routes to its drivers. None means that a change rebuilds all rows."""


def plain_column(column: str) -> str:
    """Return a path's column without the suffix `TEXT`."""
    return column.removesuffix(TEXT)
