"""Access paths: the columns by which a small build looks up rows of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl
import pyarrow as pa

from headrace.build.pruning import KeySource, key_sources
from headrace.iceberg.rows.row_store import Ranges
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from headrace.spec.sql.access_paths import AccessPaths, access_paths, key_paths
from headrace.spec.sql.queries import parse_query
from headrace.spec.sql.stage_query import follow_columns

_UNITS = {
    "YEAR": "1y",
    "QUARTER": "1q",
    "MONTH": "1mo",
    "WEEK": "1w",
    "DAY": "1d",
    "HOUR": "1h",
    "MINUTE": "1m",
    "SECOND": "1s",
}
_MOST_RANGES = 64
"""Up to this many values of a time key get a range each; more values are read as one range."""


class KnownColumns(Protocol):
    """An object with the columns of a pipeline's tables, such as a lake."""

    @property
    def columns(self) -> Mapping[TableName, tuple[Column, ...]]: ...


def lookup_paths(lake: KnownColumns, table: LayerTable) -> AccessPaths:
    """Return the join paths from a table's drivers to its lookups."""
    followed = follow_columns(table, lake.columns)
    if not isinstance(followed.source, Query):
        reason = "a Python function may read any of its rows"
        return AccessPaths(dict.fromkeys(table.lookups), dict.fromkeys(table.lookups, reason), table.lookups)
    return _parse_paths(followed.source.text, _columns(lake, table), followed)


def driver_keys(lake: KnownColumns, table: LayerTable, driver: TableName) -> Mapping[str, str]:
    """Return the driver's columns that the query passes unchanged as keys, each with its key."""
    return _plain_columns(lake, table, driver, table.keys)


def driver_constants(lake: KnownColumns, table: LayerTable, driver: TableName) -> Mapping[str, str]:
    """Return the driver's columns that the query passes unchanged as constant columns, each with its constant column."""
    columns = _plain_columns(lake, table, driver, (*table.keys, *table.constant)) if table.constant else {}
    return {column: name for column, name in columns.items() if name in table.constant}


def _plain_columns(lake: KnownColumns, table: LayerTable, driver: TableName, names: tuple[str, ...]) -> Mapping[str, str]:
    followed = follow_columns(table, lake.columns)
    if not isinstance(followed.source, Query):
        return {}
    keys = _parse_keys(followed.source.text, _columns(lake, table), followed, names)
    return {} if keys is None else dict(keys.get(driver, ()))


def key_ranges(lake: KnownColumns, table: LayerTable, driver: TableName, touched: pa.Table) -> Ranges | None:
    """Return the time ranges of a driver's rows for the touched keys, if a key is the driver's time truncated to a unit."""
    types = {column.name: column.type for column in lake.columns[driver]}
    ranges: dict[str, list[tuple[object, object]]] = {}
    for source in time_keys(lake, table, driver):
        (column,), unit = source.columns, _UNITS[source.unit or "DAY"]
        bounds = _ranges(pl.DataFrame(touched.select([source.key]))[source.key], unit, types[column])
        if bounds:
            ranges[column] = bounds
    return ranges or None


def time_keys(lake: KnownColumns, table: LayerTable, driver: TableName) -> tuple[KeySource, ...]:
    """Return the keys of a table that are a time of its only driver, truncated to a unit."""
    types = {column.name: column.type for column in lake.columns[driver]}
    sources = key_sources(table) if len(table.drivers) == 1 else ()
    timed = (source for source in sources if source.unit and len(source.columns) == 1)
    return tuple(source for source in timed if _is_time(types.get(source.columns[0])))


def _ranges(keys: pl.Series, unit: str, kind: object) -> list[tuple[object, object]]:
    """Return for each key the range from its unit's start to its end, or nothing if a key is null."""
    zone = "UTC" if kind == Primitive("timestamp") else None
    if keys.null_count() or keys.is_empty() or not keys.dtype.is_temporal():
        return []
    start = keys.unique().cast(pl.Datetime("us", zone)).dt.truncate(unit).unique().sort()
    end = start.dt.offset_by(unit)
    if kind == Primitive("date"):
        start, end = start.cast(pl.Date), end.cast(pl.Date)
    if len(start) > _MOST_RANGES:
        return [(start[0], end[-1])]
    return list(zip(start.to_list(), end.to_list(), strict=True))


def _is_time(kind: object) -> bool:
    return kind in (Primitive("timestamp"), Primitive("timestamp_ntz"), Primitive("date"))


KnownPath = tuple[tuple[TableName, tuple[str, ...]], ...]
"""The columns of a query's inputs."""


def _columns(lake: KnownColumns, table: LayerTable) -> KnownPath:
    def names(columns: tuple[Column, ...]) -> tuple[str, ...]:
        return tuple(column.name for column in columns)

    return tuple((name, names(lake.columns[name])) for name in table.inputs)


_Keys = Mapping[TableName, tuple[tuple[str, str], ...]] | None
_paths: dict[tuple[str, KnownPath], AccessPaths] = {}
_keys: dict[tuple[str, KnownPath, tuple[str, ...]], _Keys] = {}


def _parse_paths(text: str, known: KnownPath, table: LayerTable) -> AccessPaths:
    """Return the query's join paths to its lookups, computed once."""
    key = (text, known)
    if key not in _paths:
        _paths[key] = access_paths(parse_query(text, place=table.place), known=dict(known), casts=True)
    return _paths[key]


def _parse_keys(text: str, known: KnownPath, table: LayerTable, names: tuple[str, ...]) -> _Keys:
    """Return the drivers' columns that the query passes unchanged under these names, computed once."""
    key = (text, known, names)
    if key not in _keys:
        _keys[key] = key_paths(parse_query(text, place=table.place), names, known=dict(known))
    return _keys[key]
