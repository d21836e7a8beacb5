"""How far a layer table has read its inputs, as the table itself says it.

The entry stands in the table's properties and, where a build changed rows, in the summary of the snapshot that holds them: data
and progress are one commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from pyiceberg.table import Table

from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers.landing import find_held, is_rolled_back

KEY = "headrace.build"
READ = "headrace.read."


@dataclass(frozen=True)
class InputState:
    """A point in the life of an input.

    Rows that came later have a higher `position` (the checkpoint or the build that wrote them). Another `generation` means that
    rows went away or changed without a trace, so that all of it has to be read again. `erasures` counts how often a person was
    erased from it or from what it is made of: nothing that was made of it before may stay, not even by a lookup. `replays`
    counts in the same way how often rows were replaced by a replay. `rows` is how many there are. `removed_in` is the last
    position at which old rows were kept for readers; None where that is not known.
    """

    snapshot_id: int | None = None
    position: int = 0
    generation: int = 0
    rows: int = 0
    erasures: int = 0
    replays: int = 0
    removed_in: int | None = None

    def is_at(self, other: InputState) -> bool:
        """Return whether nothing happened between two points: compaction makes snapshots, but moves nothing."""
        return (self.position, self.generation) == (other.position, other.generation)


@dataclass(frozen=True)
class CheckedExpectation:
    sentence: str
    otherwise: str
    checked: int
    failed: int
    sample: str | None = None


@dataclass(frozen=True)
class TrainedWeights:
    """The weights with which a table of entities compares records, as build `version` trained them of so many `records`.

    `levels` are m and u of every level of each compared column. Those of `columns` were trained, the others are fixed.
    """

    version: int
    records: int
    chance: float
    levels: Mapping[str, tuple[tuple[float, float], ...]]
    columns: tuple[str, ...] = ()

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> TrainedWeights:
        levels = {column: tuple((m, u) for m, u in found) for column, found in values["levels"].items()}
        return TrainedWeights(**{**values, "levels": levels, "columns": tuple(values["columns"])})


@dataclass(frozen=True)
class BuildLedger:
    """One build of a layer table.

    `changed_in` is the last build that changed rows, `generation` the last that wrote all of them anew. `definition` is the
    digest of the table's definition, and `definition_fields` one of each of its fields, to say later which of them has changed;
    builds of 0.1 recorded none. `writer` is unique to an attempt. `rows_processed` counts the rows that the file made of what
    had changed, `rows_written` those of them that came into the table or changed there, in `seconds` up to the commit.
    `phases` says how these are spent; its `commit` is that of the build before, because a commit can't tell its own duration.
    `event_time_us` is the highest time of an event that builds have seen, where the table has a watermark, and `rows_late`
    how many rows came behind that. `rows_carried` is how many rows have a value that another event than their own told,
    `rows_unknown` how many have one that none told. `truncated_at` and `deleted_at` are the sequence of the newest truncate and
    the newest deletion, of all since the table was written anew where `knows_deletes`. `erasures` counts the builds that wrote
    it anew because a person was erased from an input, and `replays` those because rows of one were replayed. `removed_in` is
    the last build that kept old rows for readers; None where that was not noted yet. `largest_entity` is how many records the
    largest entity has; `weights` are those that a table with `fuzzy: {train: true}` compares records with until its
    next refresh. `frozen` are the lookups that were joined as of the build. `added_columns` are those names of columns that
    Headrace adds which the query did not give; None where a build of an earlier version recorded none.
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
        values = asdict(replace(self, reads={}, definition_fields={}))
        values["definition_fields"] = dict(self.definition_fields)
        values["reads"] = {name: asdict(state) for name, state in self.reads.items()}
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> BuildLedger:
        known = {each.name for each in fields(BuildLedger)}
        values = {name: value for name, value in json.loads(text).items() if name in known}
        values["reads"] = MappingProxyType({name: InputState(**state) for name, state in values["reads"].items()})
        values["expectations"] = tuple(CheckedExpectation(**each) for each in values["expectations"])
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
        """Return the entry, and for people the snapshot of every input that was read."""
        reads = {READ + name: str(state.snapshot_id) for name, state in self.reads.items()}
        return {KEY: self.to_json(), **reads}


def read_build(table: Table | None) -> BuildLedger:
    """Return the table's newest entry, or an empty one for a table that was never built.

    After a rollback it is the one of the snapshot that the table was rolled back to, under the number of the newest and as a
    generation of its own: what the table no longer holds is built again, and its readers notice.
    """
    if table is None or KEY not in table.properties:
        return BuildLedger()
    newest = BuildLedger.from_json(table.properties[KEY])
    if not is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number):
        return newest
    found = find_held(table, KEY)
    held = BuildLedger.from_json(found[1]) if found else BuildLedger()
    return replace(
        held,
        build_id=newest.build_id,
        writer=newest.writer,
        generation=newest.build_id + 1,
        erasures=newest.erasures,
        replays=newest.replays,
        quarantine_files=(),
        snapshot_id=found[0].snapshot_id if found else 0,
        sequence_number=(found[0].sequence_number or 0) if found else 0,
    )
