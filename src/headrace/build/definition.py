"""A table's definition: a versioned document of everything that determines the table's rows.

A build records the document's digest with the table. If the digest of the table's file differs later, the table is refreshed.
These rules keep the digest stable:

1. Every field is named here, never taken from another class: renaming a setting in the code changes no document.
2. A field with its default value is omitted from the document, at every level. To add a setting, add a field whose default is
the previous behaviour: tables that don't use the setting keep their digests. 3. A default never changes. It is the meaning of a
document without the field, not the current default of a setting. 4. A change that these rules don't allow needs a new VERSION,
and then digests of both versions are compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from headrace.build.entities.levels import CHANCE, LEVELS
from headrace.spec.loading.schedule_arguments import without_schedule
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.layers import LayerTable, Query, Staged
from headrace.spec.model.matching import Match
from headrace.spec.sql.sql_text import condition_without_comments, without_comments

VERSION = 1
_FIELD_DIGEST = 12
"""The number of hexadecimal digits in a field's digest. Field digests only explain a change, they never trigger a refresh."""

_IN_WORDS = {"query": "the query", "python": "the Python file", "stage": "the columns in stage_tables.yaml"}


@dataclass(frozen=True)
class StagedColumnDefinition:
    name: str
    cast: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class StageDefinition:
    """An entry of stage_tables.yaml, without its query, which grows with the captured table."""

    source: str
    columns: tuple[StagedColumnDefinition, ...] = ()
    others: bool = True
    event_date: str | None = None


@dataclass(frozen=True)
class WindowDefinition:
    partition_by: tuple[str, ...]
    order_by: str
    seconds: float


@dataclass(frozen=True)
class MatchDefinition:
    column: str
    source: str
    how: str
    case: bool = True
    plus_tags: bool = True
    dots: bool = True
    region: str | None = None
    region_column: str | None = None
    max_records: int = 50


@dataclass(frozen=True)
class FuzzyDefinition:
    """`levels` has each comparison in use with its levels: test, m, u and limit. `seed` is set by `train`."""

    compare: tuple[tuple[str, str], ...]
    block_on: tuple[tuple[str, ...], ...]
    at_least: float
    levels: tuple[tuple[str, tuple[tuple[str, float, float, float], ...]], ...]
    chance: float
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """Everything that determines a table's rows. Fields are named as in the table's file.

    One of `query`, `python` (the text of the file) and `stage` is set. `expect` are the expectations that reject rows: the
    condition and the action. SQL formatting and comments are not part of it, nor are settings that change no row: `about`,
    `partition_by`, `constant`, `watermark`, `largest_entity`, `target_lag`, `snapshots_for`.
    """

    kind: str
    query: str | None = None
    python: str | None = None
    stage: StageDefinition | None = None
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    unchanged: str | None = None
    valid_from: str | None = None
    except_column_list: tuple[str, ...] = ()
    track_history_except_column_list: tuple[str, ...] = ()
    rebuild_on: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    window: WindowDefinition | None = None
    match: tuple[MatchDefinition, ...] = ()
    oldest_by: str | None = None
    fuzzy: FuzzyDefinition | None = None
    expect: tuple[tuple[str, str], ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The document: its version, and every field that differs from its default."""
        return {"version": VERSION, **_without_defaults(self)}

    @property
    def digest(self) -> str:
        """The version and the SHA-256 of the document as canonical JSON."""
        return f"{VERSION}:{hashlib.sha256(_canonical(self.document)).hexdigest()}"

    @property
    def field_digests(self) -> Mapping[str, str]:
        """A short digest of each field of the document, to name the changed fields later."""
        written = _without_defaults(self)
        return {name: hashlib.sha256(_canonical(value)).hexdigest()[:_FIELD_DIGEST] for name, value in written.items()}

    def changes_since(self, recorded: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the fields that differ from recorded digests; none if no digests were recorded."""
        if not recorded:
            return ()
        now = self.field_digests
        known = [field.name for field in fields(self)]
        names = [*known, *sorted(name for name in recorded if name not in known)]
        return tuple(_IN_WORDS.get(name, name) for name in names if now.get(name) != recorded.get(name))


def definition_of(table: LayerTable) -> TableDefinition:
    """Return the definition of a table. Reads the file of a Python table."""
    is_query = isinstance(table.source, Query)
    return TableDefinition(
        kind=table.kind,
        query=without_comments(table.source.text) if isinstance(table.source, Query) and not table.staged else None,
        python=None if is_query else without_schedule(table.path.read_text(encoding="utf-8")),
        stage=None if table.staged is None else _stage(table.staged),
        keys=table.keys,
        sequence_by=table.sequence_by,
        apply_as_deletes=_condition(table.apply_as_deletes),
        apply_as_truncates=_condition(table.apply_as_truncates),
        unchanged=table.unchanged,
        valid_from=table.valid_from,
        except_column_list=table.except_columns,
        track_history_except_column_list=table.untracked,
        rebuild_on=tuple(sorted((str(name), tuple(sorted(pairs.items()))) for name, pairs in table.rebuild_on.items())),
        window=None
        if table.window is None
        else WindowDefinition(table.window.partition_by, table.window.order_by, float(table.window.seconds)),
        match=tuple(map(_match, table.matches)),
        oldest_by=table.oldest_by,
        fuzzy=None if table.fuzzy is None else _fuzzy(table.fuzzy),
        expect=tuple(
            (condition_without_comments(expectation.that), expectation.on_failure)
            for expectation in table.expectations
            if expectation.on_failure in ("drop", "quarantine")
        ),
    )


def _condition(written: str | None) -> str | None:
    return None if written is None else condition_without_comments(written)


def _stage(staged: Staged) -> StageDefinition:
    columns = tuple(
        StagedColumnDefinition(
            column.name, None if column.cast is None else str(column.cast), None if column.unit is None else str(column.unit)
        )
        for column in sorted(staged.columns, key=lambda column: column.name)
    )
    return StageDefinition(str(staged.source), columns, staged.others, staged.event_date)


def _match(match: Match) -> MatchDefinition:
    rules, regions = match.email, (match.region, match.region_column)
    emails = (rules.case, rules.plus_tags, rules.dots)
    return MatchDefinition(match.column, match.source, match.how, *emails, *regions, match.max_records)


def _fuzzy(fuzzy: Fuzzy) -> FuzzyDefinition:
    used = sorted({comparison.how for comparison in fuzzy.compare})
    return FuzzyDefinition(
        compare=tuple((comparison.column, comparison.how) for comparison in fuzzy.compare),
        block_on=tuple(block.columns for block in fuzzy.block_on),
        at_least=float(fuzzy.at_least),
        levels=tuple((how, tuple((level.test, level.m, level.u, float(level.limit)) for level in LEVELS[how])) for how in used),
        chance=CHANCE,
        seed=fuzzy.seed if fuzzy.train else None,
    )


def _without_defaults(value: Any) -> Any:
    """Return a value as JSON; for dataclasses, only the fields that differ from their default."""
    if is_dataclass(value):
        pairs = [(field, getattr(value, field.name)) for field in fields(value)]
        changed = [(field, item) for field, item in pairs if field.default is MISSING or item != field.default]
        return {field.name: _without_defaults(item) for field, item in changed}
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    return value


def _canonical(value: Any) -> bytes:
    """Return canonical JSON: sorted names, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
