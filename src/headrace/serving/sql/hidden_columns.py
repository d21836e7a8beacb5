"""Rewrite queries of tables with hidden columns, or as of a moment: a subquery of visible columns replaces the table's name.

So no `SELECT *` returns hidden columns, whatever a query joins, renames or nests, while other columns with these names stay.
If a subquery is not allowed, as in DESCRIBE or the engine's own time travel, they are removed from the result instead. As of a
moment, every mention of a table needs a subquery, because it reads the columns of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from headrace.errors import BadQueryError
from headrace.iceberg.schema.added_columns import hidden_columns, shown_columns
from headrace.iceberg.snapshots.as_of import as_of, resolve_snapshots
from headrace.iceberg.snapshots.moments import Moment
from headrace.serving.sql.question import Mention, Question, SplitColumns


def split_columns(question: Question, catalog: Catalog, at: Moment | None = None) -> Question:
    """Return the question with the snapshots to read as of `at`, and the columns of tables that list them."""
    snapshots = resolve_snapshots(catalog, question.tables, at)
    tables = ((name, as_of(catalog.load_table(name), snapshots.get(name))) for name in question.tables)
    columns = {
        name: SplitColumns(shown_columns(table), hidden)
        for name, table in tables
        if (hidden := hidden_columns(table)) or name in snapshots
    }
    return replace(question, columns=columns, snapshots=snapshots)


def list_columns(
    question: Question, *, name: Callable[[Mention], str], quote: Callable[[str], str], version: str = "VERSION AS OF"
) -> str:
    """Return the query with a subquery of the visible columns instead of each table that lists them.

    `name` returns a table's name in the engine's SQL, and `quote` a column's. `version` precedes the id of a snapshot. Raises a
    BadQueryError if a snapshot is to be read where no subquery is allowed.
    """

    def relation(mention: Mention) -> str:
        columns = question.columns.get(mention.table)
        if columns is None or not mention.takes_subquery:
            if mention.table in question.snapshots:
                raise _needs_select(mention)
            return name(mention)
        if mention.is_column:
            return quote(mention.short)
        snapshot = question.snapshots.get(mention.table)
        stored = name(mention) if snapshot is None else f"{name(mention)} {version} {snapshot:d}"
        listed = f"(SELECT {', '.join(map(quote, columns.shown))} FROM {stored})"
        return listed if mention.alias else f"{listed} AS {quote(mention.short)}"

    return question.rename(relation)


def _needs_select(mention: Mention) -> BadQueryError:
    return BadQueryError(
        f"--at needs a SELECT of {mention.table}: DESCRIBE, TABLE, a sample without alias or another time travel can't read it",
        where="query",
        next_step=f"Write SELECT … FROM {mention.table} AS name, or use --engine duckdb.",
    )


def drop_hidden(result: pa.Table, question: Question) -> pa.Table:
    """Return a result without the hidden columns of tables that a subquery could not replace."""
    named = [mention for mention in question.mentions if not mention.takes_subquery and not mention.is_column]
    hidden = frozenset[str]().union(
        *(question.columns[mention.table].hidden for mention in named if mention.table in question.columns)
    )
    if hidden and any(mention.is_described for mention in named):
        return result.filter(pc.invert(pc.is_in(result.column(0), value_set=pa.array(sorted(hidden), result.column(0).type))))
    return result.select([at for at, column in enumerate(result.column_names) if column not in hidden]) if hidden else result
