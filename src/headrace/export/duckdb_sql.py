"""Rewrite Spark SQL that sqlglot does not translate correctly to DuckDB, and reject what DuckDB does not support."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.errors import SpecError
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from sqlglot import exp

_GET_ARGUMENTS = 2
_FIX = "Export with --dialect spark, or rewrite the query"


def rewrite_for_duckdb(tree: exp.Expr, table: LayerTable) -> exp.Expr:
    """Return the query with LATERAL VIEW rewritten as lateral joins, with DuckDB's `list_extract` for `get`, and without hints.

    sqlglot's translation of LATERAL VIEW loses OUTER, and rows with it. A generator without an equivalent in DuckDB raises a
    SpecError.
    """
    from sqlglot import exp

    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    for column in tree.find_all(exp.Column):
        namespace = ".".join(part for part in (column.text("catalog"), column.text("db")) if part)
        if namespace and TableName(namespace, column.text("table")) in table.inputs:
            column.set("db", None)  # a model's schema has another name, its table has the same
            column.set("catalog", None)
    for call in reversed(list(tree.find_all(exp.Anonymous))):  # inner ones first
        if call.name.lower() == "get" and len(call.expressions) == _GET_ARGUMENTS:
            call.replace(_get(*call.expressions))
    for select in tree.find_all(exp.Select):
        views = [view for view in select.args.get("laterals") or () if view.args.get("view")]
        if views:
            select.set("laterals", [lateral for lateral in select.args["laterals"] if lateral not in views] or None)
            select.set("joins", [*(select.args.get("joins") or ()), *(_join(view, table) for view in views)])
    return tree


def _get(array: exp.Expr, index: exp.Expr) -> exp.Expr:
    """Return SQL for the element at a 0-based index, null outside the array. DuckDB's indexes are 1-based or negative."""
    from sqlglot import exp

    position = exp.Add(this=exp.paren(index.copy()), expression=exp.Literal.number(1))
    element = exp.Anonymous(this="list_extract", expressions=[array.copy(), position])
    return exp.Case().when(exp.GTE(this=exp.paren(index.copy()), expression=exp.Literal.number(0)), element)


def line_of(table: LayerTable, word: str) -> int:
    """Return the line in a table's file where its query first contains a word, else where the query starts."""
    text = table.source.text if isinstance(table.source, Query) else ""
    header = re.match(r"\s*/\*.*?\*/\s*", text, re.DOTALL)
    start = header.end() if header else 0
    match = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE).search(text, start) if word else None
    return text.count("\n", 0, match.start() if match else start) + 1


def refuse(table: LayerTable, what: str, *, word: str = "") -> SpecError:
    """Return a SpecError for a query that DuckDB can't run, at the line that contains `word`."""
    return table.error(f"DuckDB can't run this query: {what}", at=line_of(table, word), fix=_FIX)


def _join(view: exp.Expr, table: LayerTable) -> exp.Join:
    """Return a lateral join with the rows and columns of a LATERAL VIEW."""
    from sqlglot import exp

    generator, alias = view.this, view.args["alias"]
    name = generator.name if isinstance(generator, exp.Anonymous) else generator.sql_name()
    word = name.lower()
    outer = bool(view.args.get("outer")) or word.endswith("_outer")
    build = _GENERATORS.get(word.removesuffix("_outer"))
    written = [column.name for column in alias.args.get("columns") or ()]
    argument = generator.expressions[0] if isinstance(generator, exp.Anonymous) and generator.expressions else generator.this
    if build is None or not isinstance(argument, exp.Expr):
        raise refuse(table, f"LATERAL VIEW {word} has no equivalent", word=word)
    values, names = build(argument, written)
    if written and names and len(written) != len(names):
        raise refuse(table, f"LATERAL VIEW {word} has {len(names)} columns, not {len(written)}", word=word)
    columns = [exp.to_identifier(column) for column in written or names]
    rows = exp.Lateral(
        this=exp.Subquery(this=exp.Select(expressions=values)),
        alias=exp.TableAlias(this=alias.this, columns=columns or None),
    )
    return exp.Join(this=rows, side="LEFT", on=exp.true()) if outer else exp.Join(this=rows, kind="CROSS")


_Values = tuple[list["exp.Expr"], Sequence[str]]
"""The columns of a generator and their names in Spark. No names means the names of a struct's fields."""


def _explode(value: exp.Expr, written: Sequence[str]) -> _Values:
    if len(written) > 1:  # only a map has a key and a value
        return [_unnest(_call("map_keys", value)), _unnest(_call("map_values", value))], ("key", "value")
    return [_unnest(value)], ("col",)


def _posexplode(value: exp.Expr, written: Sequence[str]) -> _Values:
    values, names = _explode(value, written[1:])
    counted = _call("map_keys", value) if len(values) > 1 else value.copy()
    return [_position(counted), *values], ("pos", *names)


def _inline(value: exp.Expr, written: Sequence[str]) -> _Values:
    from sqlglot import exp

    depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))  # the list, then the struct
    return [_unnest(value, depth)], ()


def _position(value: exp.Expr) -> exp.Expr:
    """Return SQL for the 0-based position of each element as an INT, as in Spark."""
    from sqlglot import exp

    subscripts = exp.Anonymous(this="generate_subscripts", expressions=[value, exp.Literal.number(1)])
    return exp.cast(exp.Sub(this=subscripts, expression=exp.Literal.number(1)), "INT")


def _unnest(value: exp.Expr, *options: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Anonymous(this="unnest", expressions=[value.copy(), *options])


def _call(name: str, value: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Anonymous(this=name, expressions=[value.copy()])


_GENERATORS: dict[str, Callable[[exp.Expr, Sequence[str]], _Values]] = {
    "explode": _explode,
    "posexplode": _posexplode,
    "inline": _inline,
}
