"""`metadata.quality_results`: the expectation results of every build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, load_table, table_location
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.ledgers.build import CheckedExpectation, recorded_name
from headrace.iceberg.rows.filters import column_is
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive

QUALITY_RESULTS = TableName("metadata", "quality_results")
COLUMNS = (
    Column("pipeline_name", Primitive("string")),
    Column("table_name", Primitive("string")),
    Column("expectation", Primitive("string")),
    Column("otherwise", Primitive("string")),
    Column("build_id", Primitive("long")),
    Column("published", Primitive("boolean")),
    Column("rows_checked", Primitive("long")),
    Column("rows_failed", Primitive("long")),
    Column("sample", Primitive("string")),
    Column("checked_at", Primitive("timestamp")),
)


@dataclass(frozen=True)
class CheckedBuild:
    """The results of one build of a table. `published` is False if a failed expectation prevented publication."""

    table: TableName
    build_id: int
    published: bool
    results: tuple[CheckedExpectation, ...]
    checked_at_us: int

    @property
    def mark(self) -> str:
        """The table property with the last recorded build of this table, for published and refused builds separately."""
        return f"headrace.quality.{'published' if self.published else 'refused'}.{self.table}"


def record_results(catalog: Catalog, settings: Settings, pipeline_name: str, builds: Sequence[CheckedBuild]) -> None:
    """Append the results of builds. Idempotent by table and build."""
    checked = [build for build in builds if build.results]
    if not checked:
        return

    def missing(table: Table) -> list[CheckedBuild]:
        return [build for build in checked if int(table.properties.get(build.mark, 0)) < build.build_id]

    def load() -> Table:
        return ensure_table(catalog, QUALITY_RESULTS, columns=COLUMNS, location=table_location(settings, QUALITY_RESULTS))

    def commit() -> Table:
        table = load()
        new = missing(table)
        if new:
            with table.transaction() as transaction:
                transaction.append(_rows(table, pipeline_name, new))
                transaction.set_properties({build.mark: str(build.build_id) for build in new})
        return table

    commit_once(commit, find=lambda: None if missing(table := load()) else table, where=str(QUALITY_RESULTS))


def read_results(catalog: Catalog, pipeline_name: str) -> list[dict[str, object]]:
    """Return all results of a pipeline, oldest first."""
    table = load_table(catalog, QUALITY_RESULTS)
    if table is None:
        return []
    rows = table.scan(row_filter=f"pipeline_name = '{pipeline_name}'").to_arrow()
    return list(rows.sort_by([("checked_at", "ascending"), ("build_id", "ascending")]).to_pylist())


def forget_samples(catalog: Catalog, pipeline_name: str, builds: Mapping[TableName, int]) -> None:
    """Clear the samples in the results of these tables, except those of the given published builds. Idempotent by build."""
    current = {str(table): build_id for table, build_id in builds.items()}

    def commit() -> bool:
        table = load_table(catalog, QUALITY_RESULTS)
        if table is None:
            return True
        for name, build_id in current.items():
            same = And(column_is("pipeline_name", pipeline_name), column_is("table_name", name))
            rows = table.scan(row_filter=same).to_arrow()
            if not any(_is_old(row, build_id) for row in rows.to_pylist()):
                continue
            cleared = [{**row, "sample": None} if _is_old(row, build_id) else row for row in rows.to_pylist()]
            table.overwrite(pa.Table.from_pylist(cleared, schema=rows.schema), overwrite_filter=same)
        return True

    commit_once(commit, find=lambda: None, where=str(QUALITY_RESULTS))


def _is_old(row: Mapping[str, object], build_id: int) -> bool:
    return row["sample"] is not None and (row["build_id"] != build_id or not row["published"])


def _rows(table: Table, pipeline_name: str, builds: Sequence[CheckedBuild]) -> pa.Table:
    rows = [
        {
            "pipeline_name": pipeline_name,
            "table_name": str(build.table),
            "expectation": result.sentence,
            "otherwise": recorded_name(result.on_failure),
            "build_id": build.build_id,
            "published": build.published,
            "rows_checked": result.checked,
            "rows_failed": result.failed,
            "sample": result.sample,
            "checked_at": datetime.fromtimestamp(build.checked_at_us / 1e6, tz=timezone.utc),
        }
        for build in builds
        for result in build.results
    ]
    return pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema()))
