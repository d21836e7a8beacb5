"""The build ledger: how far a layer table has read its inputs, recorded in the table itself.

The entry is in the table's properties and, if a build changed rows, in the summary of its snapshot: data and progress are one
commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from pyiceberg.table import Table

from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers.landing import find_entry, is_rolled_back
from headrace.spec.model.layers import OnFailure

KEY = "headrace.build"
READ = "headrace.read."


@dataclass(frozen=True)
class InputState:
    """The state of an input as of a build.

    Later rows have a higher `position` (the checkpoint or the build that wrote them). A different `generation` means that rows
    were removed or changed without a change set, so the whole input must be read again. `erasures` counts the erasures in the
    input or its upstream tables: nothing derived from earlier rows may stay, not even through a lookup. `replays` counts
    replays that replaced rows in the same way. `rows` is the row count. `removed_in` is the last position at which old rows
    were retained for readers, or None if unknown.
    """

    snapshot_id: int | None = None
    position: int = 0
    generation: int = 0
    rows: int = 0
    erasures: int = 0
    replays: int = 0
    removed_in: int | None = None

    def is_at(self, other: InputState) -> bool:
        """Return whether two states have the same rows. Compaction creates snapshots but changes neither position."""
        return (self.position, self.generation) == (other.position, other.generation)


_RECORDED = {"warn": "count"}
"""The names of 0.1 for what an expectation does with failing rows. Existing ledgers and quality results have these."""


def recorded_name(on_failure: OnFailure) -> str:
    """Return the name under which tables record what an expectation does with failing rows."""
    return _RECORDED.get(on_failure, on_failure)


@dataclass(frozen=True)
class CheckedExpectation:
    sentence: str
    on_failure: OnFailure
    checked: int
    failed: int
    sample: str | None = None

    def to_values(self) -> dict[str, object]:
        values = asdict(self)
        del values["on_failure"]
        return {**values, "otherwise": recorded_name(self.on_failure)}

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> CheckedExpectation:
        others = dict(values)
        recorded = others.pop("otherwise")
        return CheckedExpectation(on_failure="warn" if recorded == "count" else recorded, **others)


@dataclass(frozen=True)
class TrainedWeights:
    """The weights with which an entity table compares records, trained by build `version` on `records` records.

    `levels` are m and u of every level of each compared column. The weights of `columns` were trained, the others are fixed.
    """

    version: int
    records: int
    chance: float
    levels: Mapping[str, tuple[tuple[float, float], ...]]
    columns: tuple[str, ...] = ()

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> TrainedWeights:
        levels = {column: tuple((m, u) for m, u in pairs) for column, pairs in values["levels"].items()}
        return TrainedWeights(**{**values, "levels": levels, "columns": tuple(values["columns"])})


@dataclass(frozen=True)
class BuildLedger:
    """One build of a layer table.

    `changed_in` is the last build that changed rows, `generation` the last full refresh. `definition` is the digest of the
    table's definition, and `definition_fields` has a digest of each of its fields, to name the changed ones later; builds of
    0.1 recorded none. `writer` is unique to an attempt. `rows_processed` counts the rows that the query returned for the
    changed inputs, `rows_written` the rows that were added or changed in the table, in `seconds` up to the commit; `rows_read`
    counts the rows of each input that the build processed, and is empty in entries of earlier versions. `phases`
    divides these seconds; its `commit` is that of the previous build, because a commit can't record its own duration.
    `event_time_us` is the highest event time that builds have read, if the table has a watermark, and `rows_late` the number of
    rows behind it. `rows_carried` is how many rows have a value from another event than their own, `rows_unknown` how many have
    a value that no event contains. `truncated_at` and `deleted_at` are the sequence of the newest truncate and the newest
    delete; with `knows_deletes` they cover everything since the last refresh. `erasures` counts the refreshes because a person
    was erased from an input, and `replays` the refreshes because an input was replayed. `removed_in` is the last build that
    retained old rows for readers; None in entries that don't record it. `largest_entity` is the number of records in the
    largest entity; `weights` are the ones that a table with `fuzzy: {train: true}` uses until its next refresh. `frozen` are
    the lookups that were joined as of the build. `added_columns` are the columns that Headrace added to the query's own; None
    in entries of earlier versions.
    """

    build_id: int = 0
    changed_in: int = 0
    generation: int = 0
    definition: str = ""
    definition_fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    writer: str = ""
    reads: Mapping[str, InputState] = field(default_factory=lambda: MappingProxyType({}))
    rows_processed: int = 0
    rows_written: int = 0
    rows_read: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    expectations: tuple[CheckedExpectation, ...] = ()
    quarantine_files: tuple[str, ...] = ()
    built_at_us: int = 0
    event_time_us: int | None = None
    rows_late: int = 0
    rows_carried: int = 0
    rows_unknown: int = 0
    truncated_at: str | None = None
    deleted_at: str | None = None
    knows_deletes: bool = False
    snapshot_id: int = 0
    sequence_number: int = 0
    seconds: float = 0.0
    phases: BuildPhases | None = None
    erasures: int = 0
    replays: int = 0
    removed_in: int | None = None
    largest_entity: int | None = None
    weights: TrainedWeights | None = None
    frozen: tuple[str, ...] = ()
    added_columns: tuple[str, ...] | None = None

    def to_json(self) -> str:
        values = asdict(replace(self, reads={}, rows_read={}, definition_fields={}, expectations=()))
        values["expectations"] = [expectation.to_values() for expectation in self.expectations]
        values["definition_fields"] = dict(self.definition_fields)
        values["rows_read"] = dict(self.rows_read)
        values["reads"] = {name: asdict(state) for name, state in self.reads.items()}
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> BuildLedger:
        known = {field.name for field in fields(BuildLedger)}
        values = {name: value for name, value in json.loads(text).items() if name in known}
        values["reads"] = MappingProxyType({name: InputState(**state) for name, state in values["reads"].items()})
        values["expectations"] = tuple(map(CheckedExpectation.from_values, values["expectations"]))
        values["quarantine_files"] = tuple(values["quarantine_files"])
        if values.get("phases"):
            values["phases"] = BuildPhases(**values["phases"])
        values["frozen"] = tuple(values.get("frozen", ()))
        if values.get("added_columns") is not None:
            values["added_columns"] = tuple(values["added_columns"])
        if values.get("weights"):
            values["weights"] = TrainedWeights.from_values(values["weights"])
        return BuildLedger(**values)

    def to_properties(self) -> dict[str, str]:
        """Return the entry and, for people, the snapshot of every input that was read."""
        reads = {READ + name: str(state.snapshot_id) for name, state in self.reads.items()}
        return {KEY: self.to_json(), **reads}


def read_build(table: Table | None) -> BuildLedger:
    """Return the table's newest entry, or an empty one for a table that was never built.

    After a rollback it is the entry of the current snapshot, with the newest build number and a new generation: the removed
    rows are built again, and downstream tables are refreshed.
    """
    if table is None or KEY not in table.properties:
        return BuildLedger()
    newest = BuildLedger.from_json(table.properties[KEY])
    if not is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number):
        return newest
    recorded = find_entry(table, KEY)
    entry = BuildLedger.from_json(recorded[1]) if recorded else BuildLedger()
    return replace(
        entry,
        build_id=newest.build_id,
        writer=newest.writer,
        generation=newest.build_id + 1,
        erasures=newest.erasures,
        replays=newest.replays,
        quarantine_files=(),
        snapshot_id=recorded[0].snapshot_id if recorded else 0,
        sequence_number=(recorded[0].sequence_number or 0) if recorded else 0,
    )
