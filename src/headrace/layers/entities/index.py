"""The records that a table of entities holds: what is needed to resolve others with them, and the file that each is in."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from pyiceberg.table import Table

from headrace.layers.entities.resolve import Rules
from headrace.spec.matching import ENTITY_ID, PREVIOUS, UNUSED
from headrace.tables.arrow_files import read_arrow

FILE_NUMBER = "__file"


def read_index(table: Table, rules: Rules, *, paths: Sequence[str]) -> pl.DataFrame:
    """Gives back the records of data files: keys, values and entities, each with the number of its file in `paths`."""
    names = [*dict.fromkeys((*rules.keys, rules.oldest_by, *(each.column for each in rules.matches)))]
    return read_records(table, paths, columns=[*names, ENTITY_ID, PREVIOUS, UNUSED])


def read_records(table: Table, paths: Sequence[str], *, columns: Sequence[str]) -> pl.DataFrame:
    """Gives back columns of data files, each row with the number of its file in `paths`."""
    kinds = table.schema().as_arrow()
    empty = pl.DataFrame(kinds.empty_table().select(list(columns))).with_columns(pl.lit(0, pl.UInt32).alias(FILE_NUMBER))
    found = [
        pl.DataFrame(each).with_columns(pl.lit(number, pl.UInt32).alias(FILE_NUMBER))
        for number, each in enumerate(read_arrow(table, paths, columns=columns))
    ]
    return pl.concat([empty, *found])
