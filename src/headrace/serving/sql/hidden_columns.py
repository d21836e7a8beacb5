"""Rewrite queries of tables with hidden columns: a subquery of the visible columns replaces the table's name.

So no `SELECT *` returns hidden columns, whatever a query joins, renames or nests, while other columns with these names stay.
If a subquery is not allowed, as in DESCRIBE or time travel, they are removed from the result instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from headrace.iceberg.schema.added_columns import hidden_columns, shown_columns
from headrace.serving.sql.question import Mention, Question, SplitColumns


def split_columns(question: Question, catalog: Catalog) -> Question:
    """Return the question with the visible and hidden columns of each table that has hidden ones."""
    tables = ((name, catalog.load_table(name)) for name in question.tables)
    columns = {name: SplitColumns(shown_columns(table), hidden) for name, table in tables if (hidden := hidden_columns(table))}
    return replace(question, columns=columns)


def list_columns(question: Question, *, name: Callable[[Mention], str], quote: Callable[[str], str]) -> str:
    """Return the query with a subquery of the visible columns instead of each table with hidden ones.

    `name` returns a table's name in the engine's SQL, and `quote` a column's.
    """

    def relation(mention: Mention) -> str:
        columns = question.columns.get(mention.table)
        if columns is None or not mention.takes_subquery:
            return name(mention)
        if mention.is_column:
            return quote(mention.short)
        listed = f"(SELECT {', '.join(map(quote, columns.shown))} FROM {name(mention)})"
        return listed if mention.alias else f"{listed} AS {quote(mention.short)}"

    return question.rename(relation)


def drop_hidden(result: pa.Table, question: Question) -> pa.Table:
    """Return a result without the hidden columns of tables that a subquery could not replace."""
    named = [mention for mention in question.mentions if not mention.takes_subquery and not mention.is_column]
    hidden = frozenset[str]().union(
        *(question.columns[mention.table].hidden for mention in named if mention.table in question.columns)
    )
    if hidden and any(mention.is_described for mention in named):
        return result.filter(pc.invert(pc.is_in(result.column(0), value_set=pa.array(sorted(hidden), result.column(0).type))))
    return result.select([at for at, column in enumerate(result.column_names) if column not in hidden]) if hidden else result
