"""Explain a plan: how a table is built, where its builds run and why, and what they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.build.access_reads import list_reads
from headrace.build.local_tables import MOST_BYTES, MOST_ROWS
from headrace.build.plan import FEW_REFRESHED, TablePlan
from headrace.build.reads import Read, StoredColumns
from headrace.build.strategies.registry import strategy_of
from headrace.errors import BuildError
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.live_files import LiveFiles, has_bounds
from headrace.iceberg.rows.row_sizes import estimate_bytes
from headrace.iceberg.rows.row_store_size import StoredSize
from headrace.spec.model.pipeline import Pipeline

Engine = Literal["memory", "scans"]

_ALL_AGAIN = "all rows are rewritten"
_FEW_AGAIN = f"{_ALL_AGAIN}, and the inputs have at most {FEW_REFRESHED:,} rows"


@dataclass(frozen=True)
class Where:
    """Where a build runs: in memory, on rows fetched through file indexes, or on Spark's scans."""

    engine: Engine
    why: str


@dataclass(frozen=True)
class Explanation:
    """How a table is built.

    `small_builds` is where builds of few changes run, and `next_build` where the planned build runs, or None if there is
    nothing to build. `changed` is the number of changed input rows for the next build, from metadata. `stored` is the size of
    the table's cached rows and indexes on this machine.
    """

    plan: TablePlan
    strategy: str
    small_builds: Where
    next_build: Where | None
    changed: int
    reads: tuple[Read, ...]
    stored: StoredSize


@dataclass(frozen=True)
class Explainer:
    """Explains the plans of one pipeline. `most_bytes` bounds the row store, and `stored` has its sizes by table id."""

    catalog: Catalog
    pipeline: Pipeline
    known: StoredColumns
    most_bytes: int
    stored: Mapping[str, StoredSize]

    def explain(self, plan: TablePlan) -> Explanation:
        """Return the explanation of a plan, from metadata and manifests."""
        reads = list_reads(self.catalog, self.pipeline, plan, self.known)
        changed = sum(read.changed or 0 for read in reads)
        small = self._small_builds(plan, reads)
        table = load_table(self.catalog, plan.table.table)
        return Explanation(
            plan=plan,
            strategy=strategy_of(plan.table).describe(plan),
            small_builds=small,
            next_build=_next_build(plan, small, changed),
            changed=changed,
            reads=reads,
            stored=self.stored.get(table.metadata.table_uuid.hex, StoredSize()) if table else StoredSize(),
        )

    def _small_builds(self, plan: TablePlan, reads: tuple[Read, ...]) -> Where:
        if plan.table.traits.rewrites_all:
            return _refresh(plan)
        for read in reads:
            if read.is_too_large:
                return Where("scans", f"it needs all {read.rows:,} rows of {read.table}: {read.whole}")
        needed = possible = 0
        for name in dict.fromkeys(read.table for read in reads):
            table = load_table(self.catalog, name)
            if table is None:
                continue
            try:
                files = LiveFiles().of(table, None)
            except BuildError as error:
                return Where("scans", f"{name}: {error.what}")
            sizes = [estimate_bytes(file.file, table.schema()) for file in files]
            if max(sizes, default=0) > self.most_bytes:
                return Where("scans", f"{name}: the rows of a data file take about {max(sizes) >> 20:,} MB, {self._exceeds}")
            is_pruned = not any(_reads_all_files(table, read) for read in reads if read.table == name)
            needed += max(sizes, default=0) if is_pruned else sum(sizes)
            possible += sum(sizes)
        if needed > self.most_bytes:
            return Where("scans", f"the rows of its input files take about {needed >> 20:,} MB, {self._exceeds}")
        bound = f"it fetches up to {MOST_ROWS:,} rows, and {MOST_BYTES >> 20} MB in total, through file indexes"
        if possible > self.most_bytes:
            bound += f", unless the rows of the files that may hold them exceed build.cache_mb ({self.most_bytes >> 20:,})"
        return Where("memory", bound)

    @property
    def _exceeds(self) -> str:
        return f"which exceeds build.cache_mb ({self.most_bytes >> 20:,})"


def _reads_all_files(table: Table, read: Read) -> bool:
    """Return whether a small build opens all files of a table, because they have no bounds for the lookup columns."""
    schema = table.schema()
    return bool(read.columns or read.whole) and not any(has_bounds(schema, name) for name in read.columns)


def _next_build(plan: TablePlan, small: Where, changed: int) -> Where | None:
    if plan.action == "nothing":
        return None
    if plan.action == "refresh":
        return _refresh(plan)
    if not plan.reads_few or changed > MOST_ROWS:
        return Where("scans", f"about {changed:,} rows have changed, and at most {MOST_ROWS:,} fit into memory")
    return small


def _refresh(plan: TablePlan) -> Where:
    return Where("memory", _FEW_AGAIN) if plan.refreshes_few else Where("scans", _ALL_AGAIN)
