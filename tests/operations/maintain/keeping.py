"""The most thorough maintenance of a test's lake: it removes every unneeded snapshot and file."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.maintenance.orphans import Grace
from headrace.operations.maintain.maintaining import Maintained, MaintenanceContext, Target, list_work, maintain_table
from headrace.settings import Settings
from headrace.spec import Pipeline
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ThoroughKeeper(MaintenanceContext):
    """A context without a grace period. Writers to the lake have one, so that their files are not too old to commit."""

    @property
    def grace(self) -> Grace:
        return Grace(0.0, time.time())

    def expire_before_ms(self, target: Target) -> int:
        return time.time_ns() // 1_000_000


def thorough(
    settings: Settings, *, turn: Callable[[TableName], AbstractContextManager[object]] = nullcontext
) -> MaintenanceContext:
    """Return a maintenance context without any grace period."""
    return ThoroughKeeper(settings, open_catalog(settings), turn)


def maintain_all(context: MaintenanceContext, spark: SparkSession, pipeline: Pipeline, *names: str) -> dict[str, Maintained]:
    """Return the result for each table of a pipeline, or for the named tables."""
    work = list_work(context.settings, [pipeline])
    reports = [
        maintain_table(context, spark, owner, target) for owner, target in work if not names or str(target.name) in names
    ]
    return {str(maintained.name): maintained for maintained in reports if maintained}
