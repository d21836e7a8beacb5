"""Read the settings of a layer table from the comment at the top of a SQL file or from a decorator's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from headrace.errors import SpecError
from headrace.spec.loading.document import Section, Value
from headrace.spec.loading.durations import read_retention, read_seconds
from headrace.spec.loading.keys import TABLE_KEYS
from headrace.spec.loading.names import parse_table_name, read_table_name
from headrace.spec.loading.partitioning import read_transforms
from headrace.spec.model.fuzzy import Fuzzy, read_fuzzy
from headrace.spec.model.kinds import Kind
from headrace.spec.model.layers import Expectation, OnFailure, TableSettings, Watermark, Window
from headrace.spec.model.matching import LARGEST_ENTITY, Match, read_matches
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.problems import Problems
from headrace.spec.sql.macro_expansion import Macros

KINDS: tuple[Kind, ...] = get_args(Kind)
ON_FAILURE: tuple[OnFailure, ...] = get_args(OnFailure)
_WITH_KEYS = ("upsert", "history", "aggregate", "features", "entities")
_ALL = "all"
"""In `rebuild_on`: any change of the lookup rebuilds all rows."""
_WITH_SEQUENCE = ("upsert", "history", "entities")


def read_settings(value: Value, *, macros: Macros, problems: Problems) -> TableSettings | None:
    """Return the settings with macros expanded in their conditions, or None if they have errors, all of which are collected."""
    before = len(problems.errors)
    section = problems.attempt(value.section, TABLE_KEYS, problems=problems)
    if section is None:
        return None
    reader, attempt = _SettingsReader(section, macros, problems), problems.attempt
    kind = attempt(reader.kind)
    settings = TableSettings(
        kind=kind or "append",
        about=attempt(reader.about) or "",
        keys=attempt(reader.names, "keys") or (),
        sequence_by=attempt(reader.names, "sequence_by") or (),
        apply_as_deletes=attempt(reader.condition, "apply_as_deletes"),
        apply_as_truncates=attempt(reader.condition, "apply_as_truncates"),
        unchanged=attempt(reader.text, "unchanged"),
        valid_from=attempt(reader.text, "valid_from"),
        except_columns=attempt(reader.names, "except_column_list") or (),
        untracked=attempt(reader.names, "track_history_except_column_list") or (),
        partition_by=attempt(reader.partition_by) or (),
        constant=attempt(reader.names, "constant") or (),
        rebuild_on=attempt(reader.rebuild_on) or MappingProxyType({}),
        frozen=attempt(reader.frozen) or (),
        window=attempt(reader.window),
        watermark=attempt(reader.watermark),
        target_lag=attempt(reader.target_lag),
        snapshots_for=attempt(reader.snapshots_for),
        matches=attempt(reader.matches) or (),
        oldest_by=attempt(reader.text, "oldest_by"),
        fuzzy=attempt(reader.fuzzy),
        largest_entity=attempt(reader.largest_entity) or LARGEST_ENTITY,
        expectations=attempt(reader.expectations) or (),
        lines={key: setting.key_line for key, setting in section.values.items()},
    )
    if len(problems.errors) == before:
        reader.check_kind(settings)
    return settings if len(problems.errors) == before and reader.is_expanded else None


@dataclass
class _SettingsReader:
    """Read the settings one by one. `is_expanded` is False if a condition calls a macro whose definition has errors."""

    section: Section
    macros: Macros
    problems: Problems
    is_expanded: bool = True

    def kind(self) -> Kind:
        """Return the kind that is set, or the one that the other settings imply."""
        value = self.section.find("kind")
        if value is not None:
            return value.choice(KINDS)
        if self.section.find("window"):
            return "features"
        if self.section.find("match"):
            return "entities"
        if self.scd_type() == 2:
            return "history"
        if self.section.find("keys"):
            return "upsert" if self.section.find("sequence_by") else "aggregate"
        return "append"

    def scd_type(self) -> int:
        value = self.section.find("stored_as_scd_type")
        return 1 if value is None else value.whole_number(at_least=1, at_most=2)

    def about(self) -> str:
        return self.text("about") or ""

    def text(self, key: str) -> str | None:
        value = self.section.find(key)
        return None if value is None else value.text().strip()

    def condition(self, key: str) -> str | None:
        value = self.section.find(key)
        return None if value is None else self._expand(value).strip()

    def _expand(self, value: Value) -> str:
        """Return a SQL condition with its macros expanded."""
        text = value.text()
        errors: list[SpecError] = []
        expanded = self.macros.expand(text, refuse=lambda what, offset, fix: value.error(what, fix=fix), errors=errors)
        self.problems.errors += errors
        self.is_expanded &= expanded is not None
        return expanded.text if expanded else text

    def names(self, key: str) -> tuple[str, ...]:
        value = self.section.find(key)
        if value is None:
            return ()
        if value.is_text():
            return (value.text().strip(),)
        names = [self.problems.attempt(item.text) for item in value.items()]
        return tuple(name for name in names if name is not None)

    def partition_by(self) -> tuple[Transform, ...]:
        value = self.section.find("partition_by")
        return () if value is None else read_transforms(value, problems=self.problems)

    def rebuild_on(self) -> Mapping[TableName, Mapping[str, str]]:
        value = self.section.find("rebuild_on")
        if value is None:
            return {}
        lookups: dict[TableName, Mapping[str, str]] = {}
        for name, entry in value.section(None, problems=self.problems).values.items():
            table = self.problems.attempt(parse_table_name, name, entry)
            pairs = self.problems.attempt(self._pairs, entry)
            if table and pairs is not None:
                lookups[table] = pairs
        return MappingProxyType(lookups)

    def _pairs(self, value: Value) -> Mapping[str, str]:
        """Return the lookup's columns and the driver's: `[charge_id]`, `{id: charge_id}` if names differ, empty for `all`."""
        if value.is_text() and value.text().strip() == _ALL:
            return {}
        if value.is_list():
            pairs = {item.text(): item.text() for item in value.items()}
        else:
            inner = value.section(None, problems=self.problems).values
            pairs = {name: column.text() for name, column in inner.items()}
        if not pairs:
            raise value.error("rebuild_on lists no columns", fix=f"Name the columns of the join, or write {_ALL}")
        return pairs

    def frozen(self) -> tuple[TableName, ...]:
        value = self.section.find("frozen")
        if value is None:
            return ()
        items = (value,) if value.is_text() else value.items()
        tables = [self.problems.attempt(read_table_name, item) for item in items]
        return tuple(table for table in tables if table is not None)

    def window(self) -> Window | None:
        value = self.section.find("window")
        if value is None:
            return None
        inner = value.section(("partition_by", "order_by", "range"), problems=self.problems)
        attempt = self.problems.attempt
        columns = attempt(lambda: tuple(item.text() for item in inner.need("partition_by", example="[customer_id]").items()))
        seconds = attempt(lambda: read_seconds(inner.need("range", example="1h"), example="1h"))
        order = attempt(lambda: inner.need("order_by", example="created_at").text())
        return None if columns is None or seconds is None or order is None else Window(columns, order, seconds)

    def watermark(self) -> Watermark | None:
        value = self.section.find("watermark")
        if value is None:
            return None
        inner = value.section(("column", "delay"), problems=self.problems)
        seconds = self.problems.attempt(lambda: read_seconds(inner.need("delay", example="10 minutes"), example="10 minutes"))
        column = self.problems.attempt(lambda: inner.need("column", example="event_time").text())
        return None if seconds is None or column is None else Watermark(column, seconds)

    def target_lag(self) -> float | None:
        value = self.section.find("target_lag")
        return None if value is None else read_seconds(value, example="1 minute")

    def snapshots_for(self) -> float | None:
        value = self.section.find("snapshots_for")
        return None if value is None else read_retention(value)

    def matches(self) -> tuple[Match, ...]:
        value = self.section.find("match")
        return () if value is None else read_matches(value, problems=self.problems)

    def fuzzy(self) -> Fuzzy | None:
        value = self.section.find("fuzzy")
        return None if value is None else read_fuzzy(value, problems=self.problems)

    def largest_entity(self) -> int:
        value = self.section.find("largest_entity")
        return LARGEST_ENTITY if value is None else value.whole_number(at_least=2, at_most=1_000_000_000)

    def expectations(self) -> tuple[Expectation, ...]:
        value = self.section.find("expect")
        if value is None:
            return ()
        sentences = value.section(None, problems=self.problems).values.items()
        expectations = [self.problems.attempt(self._expectation, sentence, entry) for sentence, entry in sentences]
        return tuple(expectation for expectation in expectations if expectation is not None)

    def _expectation(self, sentence: str, value: Value) -> Expectation | None:
        if value.is_text():
            return Expectation(sentence, self._expand(value), "warn", value.key_line)
        inner = value.section(("that", "on_failure"), aliases={"otherwise": "on_failure"}, problems=self.problems)
        on_failure = self.problems.attempt(self._on_failure, inner)
        that = self.problems.attempt(lambda: self._expand(inner.need("that", example="amount > 0")))
        return None if that is None or on_failure is None else Expectation(sentence, that, on_failure, value.key_line)

    def _on_failure(self, expectation: Section) -> OnFailure:
        written = expectation.find("on_failure")
        return "warn" if written is None else written.choice(ON_FAILURE, aliases={"count": "warn"})

    def check_kind(self, settings: TableSettings) -> None:
        """Check that the settings fit the kind and each other. Errors are collected in `problems`."""
        kind = settings.kind
        if kind in _WITH_KEYS and not settings.keys:
            self._keep("kind", f"a table of kind {kind} needs keys", fix="Add keys: [column]")
        if kind in ("append", "full") and settings.keys:
            self._keep("keys", f"a table of kind {kind} can't have keys", fix="Remove keys, or the kind")
        if kind in _WITH_SEQUENCE and not settings.sequence_by:
            self._keep("kind", f"a table of kind {kind} needs sequence_by", fix="Add sequence_by: column")
        if kind not in _WITH_SEQUENCE:
            for key, is_set in (
                ("sequence_by", settings.sequence_by),
                ("apply_as_deletes", settings.apply_as_deletes),
                ("apply_as_truncates", settings.apply_as_truncates),
                ("unchanged", settings.unchanged),
                ("except_column_list", settings.except_columns),
            ):
                if is_set:
                    self._keep(key, f"{key} has no effect in a table of kind {kind}", fix=f"Remove {key}")
        if kind == "history" and len(settings.sequence_by) > 1 and not settings.valid_from:
            self._keep(
                "sequence_by",
                "a history with several columns in sequence_by needs valid_from",
                fix="Add valid_from: with the column that holds the start of a version",
            )
        if settings.valid_from and kind != "history":
            self._keep(
                "valid_from",
                f"valid_from has no effect in a table of kind {kind}",
                fix="Remove it, or add stored_as_scd_type: 2",
            )
        if settings.untracked and kind != "history":
            self._keep(
                "track_history_except_column_list",
                f"track_history_except_column_list has no effect in a table of kind {kind}",
                fix="Remove it, or add stored_as_scd_type: 2",
            )
        if (kind == "features") != (settings.window is not None):
            self._keep(
                "window" if settings.window else "kind",
                "window and kind: features require each other",
                fix="Write window: {partition_by: [customer_id], order_by: created_at, range: 1h}, or remove both",
            )
        if (kind == "entities") != bool(settings.matches):
            self._keep(
                "match" if settings.matches else "kind",
                "match and kind: entities require each other",
                fix="Write match: {email_normalized: {from: email, as: email}}, or remove both",
            )
        for key, written in (
            ("apply_as_deletes", settings.apply_as_deletes),
            ("apply_as_truncates", settings.apply_as_truncates),
            ("unchanged", settings.unchanged),
            ("constant", settings.constant),
            ("partition_by", settings.partition_by),
        ):
            if kind == "entities" and written:
                self._keep(key, f"{key} has no effect in a table of kind {kind}", fix=f"Remove {key}")
        for key in ("oldest_by", "fuzzy", "largest_entity"):
            if kind != "entities" and self.section.find(key):
                self._keep(key, f"{key} has no effect in a table of kind {kind}", fix=f"Remove {key}")
        if kind == "full" and (settings.rebuild_on or settings.frozen):
            key = "rebuild_on" if settings.rebuild_on else "frozen"
            self._keep(key, f"{key} has no effect in a table of kind {kind}", fix=f"Remove {key}")
        if kind in ("append", "features") and any(settings.rebuild_on.values()):
            self._keep(
                "rebuild_on",
                f"a table of kind {kind} can't rebuild individual rows",
                fix=f"Remove rebuild_on, write {_ALL} for the lookup, or give the table keys and no window",
            )
        for column in (*settings.keys, *settings.sequence_by, settings.valid_from, settings.oldest_by):
            if column in settings.except_columns:
                self._keep(
                    "except_column_list",
                    f'except_column_list can\'t contain "{column}", which identifies rows',
                    fix="Remove it from except_column_list",
                )
        for column in settings.fuzzy.columns if settings.fuzzy else ():
            if column in settings.except_columns:
                self._keep(
                    "except_column_list",
                    f'except_column_list can\'t contain "{column}", which fuzzy compares',
                    fix="Remove it from except_column_list",
                )

    def _keep(self, key: str, what: str, *, fix: str) -> None:
        value = self.section.find(key)
        self.problems.errors.append((value or self.section.value).key_error(what, fix=fix))
