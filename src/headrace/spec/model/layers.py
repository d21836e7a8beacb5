"""Layer tables: the frozen values that the SQL and Python files of a pipeline are read as."""

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

OnFailure = Literal["warn", "drop", "quarantine", "fail"]

BUILD_ID = "_build_id"
"""The column of every layer table with the build that wrote a row. Rewriting files keeps the values of unchanged rows."""

HISTORY_COLUMNS = ("valid_from", "valid_to", "is_current")

CARRIED = "_carried"
"""The column of a table with `unchanged` that records which event each carried-over value comes from."""

STATE = "_state"
"""The column of an aggregate with each row's partial states as JSON, so that a build can add changed rows to them."""

HIDDEN = (BUILD_ID, CARRIED, STATE)
"""The names of all columns that Headrace adds to tables. A query may use the name of a column that its table does not get."""


@dataclass(frozen=True)
class Expectation:
    """A sentence about rows and its condition. `on_failure` says what happens to rows that fail it."""

    sentence: str
    that: str
    on_failure: OnFailure
    line: int


@dataclass(frozen=True)
class Window:
    """The window of a features table: the rows with the same `partition_by`, up to `seconds` before a row."""

    partition_by: tuple[str, ...]
    order_by: str
    seconds: float


@dataclass(frozen=True)
class Watermark:
    """The allowed lateness of rows: the driver's event-time column and the delay after which a row counts as late."""

    column: str
    seconds: float


@dataclass(frozen=True)
class Reference:
    """A reference to a table in a query's text: characters `start` up to, not including, `end`."""

    table: TableName
    start: int
    end: int
    line: int


@dataclass(frozen=True)
class Query:
    """The text of a SQL file, including the comment with its settings, with macros expanded.

    Line numbers are those of the file. Column numbers are, too, unless `origin` maps the expanded text back to the file.
    """

    text: str
    references: tuple[Reference, ...]
    origin: SourceMap | None = None

    def locate(self, offset: int) -> Location:
        """Return the location in the file of a character of the text."""
        return self.origin.locate(offset) if self.origin else locate(self.text, offset)


@dataclass(frozen=True)
class Function:
    """A Python function and the table of each parameter, None for the Spark session."""

    name: str
    parameters: tuple[tuple[str, TableName | None], ...]


@dataclass(frozen=True)
class StagedColumn:
    """A column of a captured table in stage_tables.yaml: the type that it is cast to, and the unit of its epoch numbers."""

    name: str
    line: int
    cast: ColumnType | None = None
    unit: Unit | None = None


@dataclass(frozen=True)
class Staged:
    """An entry of stage_tables.yaml: the raw table, its columns, whether all others are included, and its date.

    `event_date` is the column with the date of the event. Without one, the date is that of the change itself.
    """

    source: TableName
    line: int
    columns: tuple[StagedColumn, ...] = ()
    others: bool = True
    event_date: str | None = None

    @property
    def definition(self) -> str:
        """What decides the table's rows, independent of its position in the file."""
        columns = sorted((column.name, str(column.cast), str(column.unit)) for column in self.columns)
        return repr((str(self.source), columns, self.others, self.event_date))

    def find(self, name: str) -> StagedColumn | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """The settings of a table.

    `rebuild_on` maps columns of a lookup to columns of the driver if the SQL does not show the join: when rows of the lookup
    change, the driver's rows with the same values are rebuilt, and all rows if it names no columns. Changes of `frozen` lookups
    are not followed: a row joins the lookup as of its build. `constant` columns never change for a key. A change of `untracked`
    columns alone starts no new version in a history, whose versions start at `valid_from`. A row that meets
    `apply_as_truncates` deletes all rows before it. `unchanged` is the column that lists the columns whose value an event did
    not contain. Rows later than `watermark` are counted as late, and still applied. `target_lag` is how many seconds a live run
    may wait before it builds a change, so that more changes share a build; without one, it builds as soon as possible.
    Snapshots stay for `snapshots_for` seconds; without it, for as long as the settings of maintenance say.
    `matches` are the values that records of one entity share, `oldest_by` orders the records of an entity, and `fuzzy` also
    joins similar records. A build warns about an entity with more than `largest_entity` records. `lines` are the line numbers
    of the settings.
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
    snapshots_for: float | None = None
    matches: tuple[Match, ...] = ()
    oldest_by: str | None = None
    fuzzy: Fuzzy | None = None
    largest_entity: int = LARGEST_ENTITY
    expectations: tuple[Expectation, ...] = ()
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class LayerTable(TableSettings):
    """A table that a pipeline builds. The rows of `drivers` become its rows, and `lookups` are joined to them.

    `reread` are the drivers that its query reads outside FROM as well, as in a self-join. With `mixes_rows`, its query
    computes a row from several rows of a driver. In both cases a build computes whole keys. `staged` is its entry in
    stage_tables.yaml, if it has one. `follows` are the lookups whose changes it follows, derived from its SQL and settings.
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
        """The columns that identify a row. A history has several rows per key, so `sequence_by` is part of it."""
        return (*self.keys, *self.sequence_by) if self.traits.keeps_versions else self.keys

    @property
    def versioned_by(self) -> str:
        """The column that a history takes `valid_from` from."""
        return self.valid_from or self.sequence_by[0]

    @property
    def computes_whole_keys(self) -> bool:
        """Whether a row is computed from all driver rows with its key rather than from one of them."""
        return self.mixes_rows or bool(self.reread)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that Headrace adds to those of the query for its builds."""
        carried = (CARRIED,) if self.unchanged else ()
        return (BUILD_ID, *carried, *((STATE,) if self.traits.adds_states else ()))

    @property
    def inputs(self) -> tuple[TableName, ...]:
        return (*self.drivers, *self.lookups)

    @property
    def followed(self) -> tuple[TableName, ...]:
        """The inputs whose changes trigger a build."""
        return self.inputs if self.traits.rewrites_all else tuple(dict.fromkeys((*self.drivers, *self.follows)))

    @property
    def change_sources(self) -> tuple[TableName, ...]:
        """The inputs whose change set a build reads, rather than all rows."""
        return (*self.drivers, *(name for name, routes in self.follows.items() if routes))

    def error(self, what: str, *, at: str | int, fix: str, column: int | None = None) -> SpecError:
        """Return a SpecError for a line, or for the line of the setting that `at` names."""
        line = at if isinstance(at, int) else self.lines.get(at, self.lines.get("", 1))
        return self.place.error(what, line=line, column=column, fix=fix)

    def check_extras(self) -> None:
        """Raise a SpecError if a setting needs a package that is not installed."""
        if self.fuzzy and not has_splink():
            raise self.error(
                "fuzzy requires Splink, which is not installed", at="fuzzy", fix="Run: pip install 'headrace[fuzzy]'"
            )
