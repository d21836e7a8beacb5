"""The records that a table of entities holds: what is needed to resolve others with them, and the file that each is in."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.layers.entities.resolve import Rules
from headrace.spec.matching import ENTITY_ID, PREVIOUS, UNUSED

FILE_NUMBER = "__file"
_AT_ONCE = 4


def read_index(table: Table, rules: Rules, *, sequence_by: str, paths: Sequence[str]) -> pl.DataFrame:
    """Gives back the records of data files, each with the number of its file in `paths`.

    The files are read as Arrow where the build is planned: for a few new records a Spark job costs more than the reading does.
    """
    names = [*dict.fromkeys((*rules.keys, rules.oldest_by, sequence_by))]
    names += [*(each.column for each in rules.matches), ENTITY_ID, PREVIOUS, UNUSED]

    def read(path: str) -> pl.DataFrame:
        with table.io.new_input(path).open() as stream:
            found = pl.DataFrame(pq.read_table(stream, columns=names, use_threads=False))
        return found.select(names)

    if not paths:
        return pl.DataFrame(schema=[*names, FILE_NUMBER])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        frames = list(pool.map(read, paths))
    numbered = [each.with_columns(pl.lit(number, pl.UInt32).alias(FILE_NUMBER)) for number, each in enumerate(frames)]
    return pl.concat(numbered)
