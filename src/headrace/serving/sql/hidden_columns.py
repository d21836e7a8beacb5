"""Queries of tables that have hidden columns: a list of the other columns is put in the place of the table's name.

So hidden columns are in no `SELECT *`, whatever a query joins, renames or nests, and other columns of these names stay. Where
no subquery can stand, as in a DESCRIBE or before a point in time, they are taken out of the result.
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
    """Return the question with the columns of its tables that have hidden ones."""
    tables = ((name, catalog.load_table(name)) for name in question.tables)
    found = {name: SplitColumns(shown_columns(table), hidden) for name, table in tables if (hidden := hidden_columns(table))}
    return replace(question, columns=found)


def list_columns(question: Question, *, name: Callable[[Mention], str], quote: Callable[[str], str]) -> str:
    """Return the query with a list of columns in the place of each table that has hidden ones.

    `name` gives a table's name as the engine has it, and `quote` a column's.
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


def drop_hidden(found: pa.Table, question: Question) -> pa.Table:
    """Return a result without hidden columns of tables whose name had to stay in the query."""
    named = [mention for mention in question.mentions if not mention.takes_subquery and not mention.is_column]
    hidden = frozenset[str]().union(
        *(question.columns[mention.table].hidden for mention in named if mention.table in question.columns)
    )
    if hidden and any(mention.is_described for mention in named):
        return found.filter(pc.invert(pc.is_in(found.column(0), value_set=pa.array(sorted(hidden), found.column(0).type))))
    return found.select([at for at, column in enumerate(found.column_names) if column not in hidden]) if hidden else found
