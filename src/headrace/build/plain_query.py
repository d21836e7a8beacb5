"""Run queries that only select columns of their drivers on polars frames, with the same result as in Spark.

Only constructs with identical semantics in both are supported: columns, aliases, literals, CAST(NULL AS …), coalesce, UNION
ALL, and conditions of IS NULL, =, <>, NOT, AND and OR over values of one type. Spark runs all other queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl
import sqlglot
from sqlglot import exp

from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType, Decimal, Primitive
from headrace.spec.sql.queries import DIALECT, table_of

_POLARS: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
    "timestamp_ntz": pl.Datetime("us"),
    "string": pl.String(),
    "binary": pl.Binary(),
}
_BOOLEAN, _INT, _STRING = Primitive("boolean"), Primitive("int"), Primitive("string")
_COMPARED = (_BOOLEAN, _INT, Primitive("long"), Primitive("date"), Primitive("timestamp"), _STRING)
_CASTS = {
    exp.DataType.Type.TEXT: _STRING,
    exp.DataType.Type.INT: _INT,
    exp.DataType.Type.BIGINT: Primitive("long"),
    exp.DataType.Type.BOOLEAN: _BOOLEAN,
    exp.DataType.Type.DATE: Primitive("date"),
    exp.DataType.Type.TIMESTAMPTZ: Primitive("timestamp"),
}
_LARGEST_INT = 2**31 - 1


class NotPlainError(Exception):
    """The query has a construct that Spark must evaluate."""


@dataclass(frozen=True)
class PlainBranch:
    """A SELECT over one driver: the columns that it reads, the filter, and the projections."""

    driver: TableName
    columns: tuple[str, ...]
    where: pl.Expr
    picks: tuple[pl.Expr, ...]

    def run(self, rows: pl.DataFrame) -> pl.DataFrame:
        # `select` of literals alone would return a single row.
        chosen = rows.filter(self.where)
        return chosen.with_columns(self.picks).select(pick.meta.output_name() for pick in self.picks)


@dataclass(frozen=True)
class PlainQuery:
    """The branches of a query, and its columns."""

    branches: tuple[PlainBranch, ...]
    columns: tuple[Column, ...]

    def reads(self, driver: TableName) -> tuple[str, ...]:
        """Return the distinct columns of a driver that the query reads."""
        branches = (branch for branch in self.branches if branch.driver == driver)
        return tuple(dict.fromkeys(name for branch in branches for name in branch.columns))

    def run(self, drivers: Mapping[TableName, pl.DataFrame]) -> pl.DataFrame:
        """Return the query's rows; `drivers` have the columns that it reads, in the declared types."""
        return pl.concat([branch.run(drivers[branch.driver]) for branch in self.branches])


def plain_query(text: str, inputs: Mapping[TableName, Sequence[Column]]) -> PlainQuery:
    """Return a query over inputs with these columns. Raise a NotPlainError if Spark must run it."""
    branches: list[PlainBranch] = []
    columns: tuple[Column, ...] | None = None
    for select in _selects(_parse(text)):
        names = None if columns is None else [column.name for column in columns]
        branch, own = _branch(select, inputs, names=names)
        if columns is not None and [column.type for column in own] != [column.type for column in columns]:
            raise NotPlainError("a column has two types")
        branches.append(branch)
        columns = own
    assert columns is not None
    return PlainQuery(tuple(branches), columns)


def plain_condition(text: str, columns: Sequence[Column]) -> pl.Expr:
    """Return a condition over rows with these columns. Raise a NotPlainError if Spark must evaluate it."""
    tree = _parse(f"SELECT {text}")
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        raise NotPlainError("not a condition")
    _only(tree, "expressions")
    return _Scope(columns, alias=None).condition(tree.expressions[0])


@lru_cache(maxsize=1024)
def _parse(text: str) -> exp.Expr:
    """Return a text's syntax tree, cached because every build needs it."""
    if "\\" in text:
        raise NotPlainError("an escape in a literal")
    try:
        return sqlglot.parse_one(text, dialect=DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise NotPlainError(str(error)) from error
    except RecursionError:
        raise NotPlainError("it is nested too deeply") from None


def _selects(tree: exp.Expr) -> list[exp.Select]:
    if type(tree) is exp.Union:
        _only(tree, "this", "expression")  # neither DISTINCT nor BY NAME
        return [*_selects(tree.this), *_selects(tree.expression)]
    if type(tree) is not exp.Select:
        raise NotPlainError(type(tree).__name__)
    return [tree]


def _branch(
    select: exp.Select, inputs: Mapping[TableName, Sequence[Column]], *, names: Sequence[str] | None
) -> tuple[PlainBranch, tuple[Column, ...]]:
    """Return a branch and its columns, which are named after the columns of the first branch."""
    _only(select, "expressions", "from_", "where")
    from_, where = select.args.get("from_"), select.args.get("where")
    source = from_.this if from_ else None
    if not isinstance(source, exp.Table) or (names is not None and len(names) != len(select.expressions)):
        raise NotPlainError("not from one table")
    _only(source, "this", "db", "catalog", "alias")
    alias = source.args.get("alias")
    if alias:
        _only(alias, "this")
    driver = table_of(source)
    if driver not in inputs:
        raise NotPlainError("not from an input")
    scope = _Scope(inputs[driver], alias=source.alias or None)
    picks, columns = [], []
    for place, projection in enumerate(select.expressions):
        if names is None and type(projection) not in (exp.Alias, exp.Column):
            raise NotPlainError("a column without a name")
        expression, kind = scope.value(projection.unalias())
        columns.append(Column(projection.alias_or_name if names is None else names[place], kind))
        picks.append(expression.alias(columns[-1].name))
    if len({column.name for column in columns}) < len(columns):
        raise NotPlainError("duplicate column names")
    condition = scope.condition(where.this) if where else pl.lit(True)
    if not scope.read:
        raise NotPlainError("no column is read, so rows can't be counted by one")
    return PlainBranch(driver, tuple(scope.read), condition, tuple(picks)), tuple(columns)


class _Scope:
    """The columns that a SELECT may reference, case-insensitively, and the columns that it references."""

    def __init__(self, columns: Sequence[Column], *, alias: str | None) -> None:
        self._columns = {column.name.lower(): column for column in columns}
        self._alias = alias.lower() if alias else None
        self.read: dict[str, None] = {}

    def value(self, node: exp.Expr) -> tuple[pl.Expr, ColumnType]:
        """Return a value and its type."""
        if type(node) is exp.Column:
            return self._column(node)
        if type(node) is exp.Boolean:
            return pl.lit(bool(node.this)), _BOOLEAN
        if type(node) is exp.Literal:
            return _literal(node)
        if isinstance(node, exp.Cast) and type(node.this) is exp.Null:
            _only(node, "this", "to")
            kind = _CASTS.get(node.to.this)
            if kind is None or node.to.expressions:
                raise NotPlainError(node.to.sql())
            return pl.lit(None, _POLARS[kind.name]), kind
        if type(node) is exp.Coalesce:
            _only(node, "this", "expressions")
            values = [self.value(argument) for argument in (node.this, *node.expressions)]
            return pl.coalesce(value for value, _ in values), _same_type([kind for _, kind in values])
        raise NotPlainError(type(node).__name__)

    def condition(self, node: exp.Expr) -> pl.Expr:
        """Return a condition in three-valued logic: true, false or null."""
        if type(node) is exp.Paren:
            return self.condition(node.this)
        if type(node) is exp.Not:
            return ~self.condition(node.this)
        if type(node) in (exp.And, exp.Or):
            left, right = self.condition(node.this), self.condition(node.args["expression"])
            return left & right if type(node) is exp.And else left | right
        if type(node) is exp.Is and type(node.args["expression"]) is exp.Null:
            return self.value(node.this)[0].is_null()
        if type(node) in (exp.EQ, exp.NEQ):
            (left, left_type), (right, right_type) = self.value(node.this), self.value(node.args["expression"])
            if _same_type([left_type, right_type]) not in _COMPARED:
                raise NotPlainError(f"a comparison of type {left_type}")
            return left == right if type(node) is exp.EQ else left != right
        value, kind = self.value(node)
        if kind != _BOOLEAN:
            raise NotPlainError(f"a condition of type {kind}")
        return value

    def _column(self, node: exp.Column) -> tuple[pl.Expr, ColumnType]:
        _only(node, "this", "table")
        column = self._columns.get(node.name.lower())
        if column is None or not isinstance(column.type, Primitive | Decimal) or type(node.this) is not exp.Identifier:
            raise NotPlainError(node.name)
        if node.table and node.table.lower() != self._alias:
            raise NotPlainError(node.table)
        self.read[column.name] = None
        return pl.col(column.name), column.type


def _literal(node: exp.Literal) -> tuple[pl.Expr, ColumnType]:
    if node.is_string:
        return pl.lit(node.this, pl.String), _STRING
    if not str(node.this).isascii() or not str(node.this).isdigit() or int(node.this) > _LARGEST_INT:
        raise NotPlainError("a number that is not an int")
    return pl.lit(int(node.this), pl.Int32), _INT


def _same_type(kinds: Sequence[ColumnType]) -> ColumnType:
    if any(kind != kinds[0] for kind in kinds):
        raise NotPlainError("values of two types")
    return kinds[0]


def _only(node: exp.Expr, *names: str) -> None:
    """Raise a NotPlainError if a node has other parts than these."""
    others = [name for name, value in node.args.items() if value and name not in names]
    if others:
        raise NotPlainError(", ".join(others))
