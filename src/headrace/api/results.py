"""The results of a project's methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.api.libraries import require

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from headrace.errors import HeadraceError

BuildState = Literal["built", "unchanged", "failed", "skipped"]


@dataclass(frozen=True)
class TableBuild:
    """What a build did with one table.

    `state` is `built`, `unchanged` if no input had changed, `failed`, or `skipped` because an upstream table failed. `rows`
    were added or changed by build `build_id` in `seconds`. `error` is the error of a failed table.
    """

    table: str
    state: BuildState
    rows: int = 0
    build_id: int = 0
    seconds: float = 0.0
    error: HeadraceError | None = None


@dataclass(frozen=True)
class StreamLanding:
    """What landed of one stream: the number of new rows in its table, and of messages that were quarantined."""

    stream: str
    rows: int
    quarantined: int


class Rows:
    """The rows of a query, in memory."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as a PyArrow table."""
        return self._rows

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self._rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame. Raises a MissingLibraryError without pandas."""
        require("pandas")
        return self._rows.to_pandas()

    def to_duckdb(self) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of DuckDB's default connection."""
        import duckdb

        return duckdb.from_arrow(self._rows)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        """Yield each row as a dictionary by column name."""
        yield from self._rows.to_pylist()

    def __repr__(self) -> str:
        return str(self.to_polars())

    def _repr_html_(self) -> str:
        return self.to_polars()._repr_html_()
