"""What a layer table is: the frozen value that a SQL or Python file of a pipeline becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from headrace.errors import SpecError
from headrace.spec.model.fuzzy import Fuzzy, has_splink
from headrace.spec.model.kinds import TRAITS, Kind, KindTraits
from headrace.spec.model.matching import LARGEST_ENTITY, Match
from headrace.spec.model.meanings import Unit
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.model.types import ColumnType
from headrace.spec.problems import Place
from headrace.spec.sql.join_paths import Follows
from headrace.spec.sql.source_map import Location, SourceMap, locate

Otherwise = Literal["count", "drop", "quarantine", "fail"]

BUILD_ID = "_build_id"
"""The column of every layer table that says which build wrote a row. Unchanged rows keep theirs when files are rewritten."""

HISTORY_COLUMNS = ("valid_from", "valid_to", "is_current")

CARRIED = "_carried"
"""The column of a table with `unchanged` that says, for values which the row's own event did not tell, which event did."""

STATE = "_state"
"""The column of an aggregate that has the partial states of each row, as JSON, so that changed rows can be added to them."""

HIDDEN = (BUILD_ID, CARRIED, STATE)
"""The names of all columns that Headrace adds to tables. A query of a table that lacks one may give a column of its name."""


@dataclass(frozen=True)
class Expectation:
    """A sentence and the condition that makes it true of a row; what is not true of a row, `otherwise` says what happens."""

    sentence: str
    that: str
    otherwise: Otherwise
    line: int


@dataclass(frozen=True)
class Window:
    """The rows that a features table looks at: those of the same `partition_by` up to `seconds` before a row."""

    partition_by: tuple[str, ...]
    order_by: str
    seconds: float


@dataclass(frozen=True)
class Watermark:
    """How late rows may be: the driver's column that says when something happened, and by how much it may lie behind."""

    column: str
    seconds: float


@dataclass(frozen=True)
class Reference:
    """A place in a query's text where a table is named: characters `start` up to, not including, `end`."""

    table: TableName
    start: int
    end: int
    line: int


@dataclass(frozen=True)
class Query:
    """A file of SQL, its settings' comment included, with its macros expanded.

    Every line of `text` is the line of the file. Columns are those of the file too unless `origin` is there, which says
    where an expanded text comes from.
    """

    text: str
    references: tuple[Reference, ...]
    origin: SourceMap | None = None

    def locate(self, offset: int) -> Location:
        """Return the place in the file that a character of the text comes from."""
        return self.origin.locate(offset) if self.origin else locate(self.text, offset)


@dataclass(frozen=True)
class Function:
    """A Python function, and the table that each of its parameters stands for; None stands for the Spark session."""

    name: str
    parameters: tuple[tuple[str, TableName | None], ...]


@dataclass(frozen=True)
class StagedColumn:
    """A column of a captured table that stage_tables.yaml names: the type that it is cast to, and what its numbers count."""

    name: str
    line: int
    cast: ColumnType | None = None
    unit: Unit | None = None


@dataclass(frozen=True)
class Staged:
    """What stage_tables.yaml says of a table: the raw table, its columns, whether all others come too, and its date.

    `event_date` is the column that says when it happened; without one it is the event's own time.
    """

    source: TableName
    line: int
    columns: tuple[StagedColumn, ...] = ()
    others: bool = True
    event_date: str | None = None

    @property
    def definition(self) -> str:
        """What decides the table's rows, wherever it stands in its file."""
        columns = sorted((each.name, str(each.cast), str(each.unit)) for each in self.columns)
        return repr((str(self.source), columns, self.others, self.event_date))

    def find(self, name: str) -> StagedColumn | None:
        return next((each for each in self.columns if each.name == name), None)


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """What the top of a table's file says.

    `rebuild_on` says for a lookup which of its columns are which columns of the driver, where the SQL does not: when its rows
    change, the driver's rows with the same values are built again, and without columns all of them. Changes of `frozen`
    lookups are not followed: they are joined as they are when a row is built. `constant` columns never change for a key.
    `untracked` columns make no new version in a history, whose versions begin at `valid_from`. A row for which
    `apply_as_truncates` holds says that all rows before it are gone. `unchanged` is the column that names those whose value an
    event could not tell. `watermark` says from when on a row counts as late: late rows are counted, and change what they must.
    `target_lag` is how many seconds a live run may leave a change unseen, so that more of them share a build; without one it
    builds as soon as it can.
    `matches` are the values by which records are of one entity, `oldest_by` says which of its records is the oldest,
    `fuzzy` when records that only look alike are of one, too. A build warns of an entity with more than
    `largest_entity` records.
    `lines` are the lines of the settings.
    """

    kind: Kind = "append"
    about: str = ""
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    unchanged: str | None = None
    valid_from: str | None = None
    except_columns: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    partition_by: tuple[Transform, ...] = ()
    constant: tuple[str, ...] = ()
    rebuild_on: Mapping[TableName, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    frozen: tuple[TableName, ...] = ()
    window: Window | None = None
    watermark: Watermark | None = None
    target_lag: float | None = None
    matches: tuple[Match, ...] = ()
    oldest_by: str | None = None
    fuzzy: Fuzzy | None = None
    largest_entity: int = LARGEST_ENTITY
    expectations: tuple[Expectation, ...] = ()
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class LayerTable(TableSettings):
    """One table that a pipeline builds: `drivers` are the inputs whose rows become its rows, `lookups` are joined to them.

    `reread` are the drivers that its query also reads in another place than after FROM, as in a join of a table to itself. With
    `mixes_rows`, its query makes rows of several rows of a driver. In both cases a build computes whole keys.
    `staged` is what its query is made from where it is one of stage_tables.yaml. `follows` are the lookups whose changes it
    follows, read from its SQL and its settings.
    """

    table: TableName
    layer: str
    path: Path
    place: Place
    source: Query | Function
    drivers: tuple[TableName, ...]
    lookups: tuple[TableName, ...] = ()
    reread: tuple[TableName, ...] = ()
    mixes_rows: bool = False
    staged: Staged | None = None
    follows: Follows = field(default_factory=lambda: MappingProxyType({}))

    @property
    def traits(self) -> KindTraits:
        return TRAITS[self.kind]

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell rows of the table apart: a history has several for each key."""
        return (*self.keys, *self.sequence_by) if self.traits.keeps_versions else self.keys

    @property
    def versioned_by(self) -> str:
        """The column that `valid_from` of a history is taken from."""
        return self.valid_from or self.sequence_by[0]

    @property
    def computes_whole_keys(self) -> bool:
        """Whether a row is computed from all rows of the drivers that have its key, not from one of them alone."""
        return self.mixes_rows or bool(self.reread)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that Headrace adds to those of the query, and that only builds read."""
        carried = (CARRIED,) if self.unchanged else ()
        return (BUILD_ID, *carried, *((STATE,) if self.traits.adds_states else ()))

    @property
    def inputs(self) -> tuple[TableName, ...]:
        return (*self.drivers, *self.lookups)

    @property
    def followed(self) -> tuple[TableName, ...]:
        """The inputs whose changes make a build."""
        return self.inputs if self.traits.rewrites_all else tuple(dict.fromkeys((*self.drivers, *self.follows)))

    @property
    def change_sources(self) -> tuple[TableName, ...]:
        """The inputs of which a build reads the rows that came and went, rather than all rows."""
        return (*self.drivers, *(name for name, routes in self.follows.items() if routes))

    def error(self, what: str, *, at: str | int, fix: str, column: int | None = None) -> SpecError:
        """Return the error for a line, or for the line of the setting that `at` names."""
        line = at if isinstance(at, int) else self.lines.get(at, self.lines.get("", 1))
        return self.place.error(what, line=line, column=column, fix=fix)

    def check_extras(self) -> None:
        """Raise a SpecError where a setting needs a package that is not installed."""
        if self.fuzzy and not has_splink():
            raise self.error("fuzzy needs Splink, which is not installed", at="fuzzy", fix="Run: pip install 'headrace[fuzzy]'")
