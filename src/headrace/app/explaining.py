"""Explain plans for `headrace plan --explain`, without Spark and without creating state."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.build.explain import Explainer, Explanation
from headrace.build.plan import TablePlan
from headrace.build.reads import StoredColumns
from headrace.iceberg.catalog.tables import find_catalog
from headrace.iceberg.rows.row_store_size import stored_sizes
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline


def explain_plans(settings: Settings, pipeline: Pipeline, plans: Sequence[TablePlan]) -> tuple[Explanation, ...]:
    """Return the explanation of each plan, in order."""
    most_bytes = settings.build_cache_mb * 1024 * 1024
    catalog = find_catalog(settings)
    known = StoredColumns.of(catalog, pipeline)
    explainer = Explainer(catalog, pipeline, known, most_bytes, stored_sizes(settings.row_cache))
    return tuple(map(explainer.explain, plans))
