"""Compute a stream's rows in the quarantine after a replay."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from headrace.operations.replay.compare import ReplayDiff
from headrace.operations.replay.target import Coordinates, Staged, Target

_KEYS = ["partition", "offset"]
_SCHEMA = {"partition": pl.Int32, "offset": pl.Int64}


def refused_after(target: Target, read: Staged, compared: ReplayDiff, *, same_bytes: bool) -> pa.Table | None:
    """Return the rows that replace `target.quarantined` in the quarantine; None if they are the same.

    Messages that are refused again get their new reason, unless edited bytes were tried.
    """
    before, bad = _frame(target.quarantined), _frame(read.bad)
    after = before.join(_places(compared.recovered), on=_KEYS, how="anti")
    if same_bytes:
        now = bad.select(*_KEYS, pl.col("reason").alias("now")).unique(_KEYS)
        after = after.join(now, on=_KEYS, how="left", maintain_order="left")
        after = after.with_columns(pl.coalesce("now", "reason").alias("reason")).select(before.columns)
    after = pl.concat([after, bad.join(_places(compared.refused), on=_KEYS, how="semi").select(before.columns)])
    if after.equals(before):
        return None
    return after.to_arrow().cast(target.quarantined.schema)


def _places(places: Iterable[Coordinates]) -> pl.DataFrame:
    return pl.DataFrame(list(places), schema=_SCHEMA, orient="row")


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
