"""A table's definition: the versioned document of all that decides which rows the table has.

A build records the document's digest with the table. If the digest of the table's file differs from it later, the table is
built again from all rows. These rules keep the digest stable:

1. Every field is named here, never taken from another class: renaming a setting in the code changes no document.
2. A field that has its default is left out of the document, at every level. To add a setting, add a field whose default means
   "as before": tables that don't use the setting keep their digests.
3. A default never changes. It says what the document means without the field, not what a setting is by default today.
4. A change that these rules don't allow is a new VERSION, and then digests of both versions are compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from headrace.build.entities.levels import CHANCE, LEVELS
from headrace.spec.loading.lag_argument import without_target_lag
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.layers import LayerTable, Query, Staged
from headrace.spec.model.matching import Match
from headrace.spec.sql.sql_text import condition_without_comments, without_comments

VERSION = 1
_FIELD_DIGEST = 12
"""How many hexadecimal digits tell the contents of one field apart; they only explain a change, and never decide about one."""

_IN_WORDS = {"query": "the query", "python": "the Python file", "stage": "the columns in stage_tables.yaml"}


@dataclass(frozen=True)
class StagedColumnDefinition:
    name: str
    cast: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class StageDefinition:
    """An entry of stage_tables.yaml. Its query is not part of it: that grows with the captured table."""

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
    """`levels` are those of the comparisons that are used: how, then test, m, u and limit of each. `seed` is set by `train`."""

    compare: tuple[tuple[str, str], ...]
    block_on: tuple[tuple[str, ...], ...]
    at_least: float
    levels: tuple[tuple[str, tuple[tuple[str, float, float, float], ...]], ...]
    chance: float
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """All that decides which rows a table has. Fields are named as in the table's file.

    One of `query`, `python` (the text of the file) and `stage` is set. `expect` are the expectations that keep rows out: the
    condition, and what happens otherwise. Formatting and comments of SQL are no part of it, nor is what changes no row:
    `about`, `partition_by`, `constant`, `watermark`, `largest_entity`.
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
        """The document: its version, and every field that has not its default."""
        return {"version": VERSION, **_without_defaults(self)}

    @property
    def digest(self) -> str:
        """The version, and the SHA-256 of the document as canonical JSON."""
        return f"{VERSION}:{hashlib.sha256(_canonical(self.document)).hexdigest()}"

    @property
    def field_digests(self) -> Mapping[str, str]:
        """A short digest of each field of the document, which says later what has changed."""
        written = _without_defaults(self)
        return {name: hashlib.sha256(_canonical(value)).hexdigest()[:_FIELD_DIGEST] for name, value in written.items()}

    def changes_since(self, recorded: Mapping[str, str]) -> tuple[str, ...]:
        """Return which fields differ from recorded digests, in words; none where nothing was recorded."""
        if not recorded:
            return ()
        now = self.field_digests
        known = [each.name for each in fields(self)]
        names = [*known, *sorted(name for name in recorded if name not in known)]
        return tuple(_IN_WORDS.get(name, name) for name in names if now.get(name) != recorded.get(name))


def definition_of(table: LayerTable) -> TableDefinition:
    """Return the definition of a table; the file of a Python table is read for it."""
    is_query = isinstance(table.source, Query)
    return TableDefinition(
        kind=table.kind,
        query=without_comments(table.source.text) if isinstance(table.source, Query) and not table.staged else None,
        python=None if is_query else without_target_lag(table.path.read_text(encoding="utf-8")),
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
            (condition_without_comments(each.that), each.otherwise)
            for each in table.expectations
            if each.otherwise in ("drop", "quarantine")
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
    used = sorted({each.how for each in fuzzy.compare})
    return FuzzyDefinition(
        compare=tuple((each.column, each.how) for each in fuzzy.compare),
        block_on=tuple(block.columns for block in fuzzy.block_on),
        at_least=float(fuzzy.at_least),
        levels=tuple((how, tuple((level.test, level.m, level.u, float(level.limit)) for level in LEVELS[how])) for how in used),
        chance=CHANCE,
        seed=fuzzy.seed if fuzzy.train else None,
    )


def _without_defaults(value: Any) -> Any:
    """Return a value as JSON has it; of dataclasses the fields that have not their default."""
    if is_dataclass(value):
        written = ((each, getattr(value, each.name)) for each in fields(value))
        return {each.name: _without_defaults(held) for each, held in written if each.default is MISSING or held != each.default}
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    return value


def _canonical(value: Any) -> bytes:
    """Return JSON of which a value has exactly one: sorted names, no spaces, plain ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
