"""A table over a GROUP BY query, without a pipeline around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName
from headrace.spec.problems import Place
from headrace.spec.sql.queries import parse_query


def group_table(text: str, *, keys: Sequence[str], frozen: Sequence[TableName] = ()) -> LayerTable:
    """Return the table that a file with this query and these keys is."""
    place = Place("marts/grouped.sql", "mine")
    parsed = parse_query(text, place=place)
    return LayerTable(
        kind="aggregate",
        keys=tuple(keys),
        frozen=tuple(frozen),
        table=TableName("mine", "grouped"),
        layer="marts",
        path=Path("marts/grouped.sql"),
        place=place,
        source=parsed.query,
        drivers=parsed.drivers,
        lookups=parsed.lookups,
    )
