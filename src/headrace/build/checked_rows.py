"""A build's computed rows after checking their expectations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.build.batch_stats import BatchStats
from headrace.build.rows import Rows
from headrace.iceberg.ledgers.build import CheckedExpectation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class CheckedRows:
    """`computed` are all rows, `good` the accepted ones, `refused` the rows for the quarantine as JSON with all reasons."""

    computed: Rows
    good: Rows
    refused: DataFrame | pa.Table
    processed: int
    results: tuple[CheckedExpectation, ...]
    batch_stats: BatchStats
