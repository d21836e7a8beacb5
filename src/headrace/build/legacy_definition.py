"""The digest of a table's definition in version 0.1."""

from __future__ import annotations

import hashlib

from headrace.build.entities.levels import CHANCE, LEVELS
from headrace.spec.loading.schedule_arguments import without_schedule
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.sql.sql_text import without_comments


def legacy_digest(table: LayerTable) -> str:
    """Return the digest that a build of version 0.1 recorded for this table.

    It hashes the repr of Python values, so nothing here may change: it recognises tables that were last built by 0.1. Builds
    record `TableDefinition.digest` instead.
    """
    written = table.source
    source = (
        without_comments(written.text)
        if isinstance(written, Query)
        else without_schedule(table.path.read_text(encoding="utf-8"))
    )
    if table.staged:
        source = table.staged.definition  # not its query, which grows with the captured table
    settings = (
        table.kind,
        table.keys,
        (*table.sequence_by, None)[0] if len(table.sequence_by) < 2 else table.sequence_by,
        table.apply_as_deletes,
        table.except_columns,
        table.untracked,
        tuple(sorted((str(name), tuple(sorted(pairs.items()))) for name, pairs in table.rebuild_on.items())),
        table.window,
        *((table.matches, table.oldest_by) if table.matches else ()),
        *((table.apply_as_truncates, table.unchanged) if table.apply_as_truncates or table.unchanged else ()),
        *((table.valid_from,) if table.valid_from else ()),
        *((table.fuzzy, dict(LEVELS), CHANCE) if table.fuzzy else ()),
        *(("train", table.fuzzy.seed) if table.fuzzy and table.fuzzy.train else ()),
        tuple((rule.that, rule.on_failure) for rule in table.expectations if rule.on_failure in ("drop", "quarantine")),
    )
    return hashlib.sha256(repr((source, settings)).encode()).hexdigest()[:16]
