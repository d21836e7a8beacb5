"""Prepare the records of a table's query: normalise them, and choose the newest of each key. Pure: frames in, frames out."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from headrace.build.entities.alike import Score
from headrace.build.entities.normalise import normalise
from headrace.build.entities.resolve import Rules, resolve, shared_too_widely
from headrace.spec.model.layers import TableSettings
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS


def rules_of(table: TableSettings, *, score: Score | None) -> Rules:
    return Rules(table.keys, table.oldest_by or table.sequence_by[0], table.matches, table.fuzzy, score)


def normalised(table: TableSettings, rows: pl.DataFrame) -> pl.DataFrame:
    """Return records with their normalised values, without the table's excluded columns."""
    return normalise(rows, table.matches).drop(*table.except_columns)


def newest(records: pl.DataFrame, *, keys: Sequence[str], sequence_by: Sequence[str]) -> pl.DataFrame:
    """Return the newest record of each key. All columns break ties, so the result does not depend on the input order.

    A null sequence is older than any other.
    """
    if records.select(pl.struct(keys).hash().n_unique()).item() == records.height:
        return records
    several = pl.struct(keys).is_duplicated()
    alone, others = records.filter(~several), records.filter(several)
    columns = [*sequence_by, *(name for name in records.columns if name not in sequence_by)]
    order = others.select(sortable(others[name]).alias(name) for name in columns).select(pl.arg_sort_by(columns)).to_series()
    decided = others[order.to_list()].unique(keys, keep="last", maintain_order=True)
    return pl.concat([alone, decided])


def resolve_records(records: pl.DataFrame, known: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Return all records of a table with their entities. `known` has the existing ids, which are kept."""
    keys = list(rules.keys)
    ids = known.select(*keys, ENTITY_ID, PREVIOUS)
    records = records.join(ids, on=keys, how="left", nulls_equal=True, maintain_order="left")
    unused = {match.column: shared_too_widely(records, match) for match in rules.matches}
    return resolve(records, rules, unused=unused)


def sortable(column: pl.Series) -> pl.Series:
    """Return sortable values: nested values as text."""
    if not column.dtype.is_nested():
        return column
    return pl.Series(column.name, [None if value is None else repr(value) for value in column.to_list()], dtype=pl.String)
