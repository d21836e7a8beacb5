"""Polars reads the tables by itself, lazily: only the columns and the files that a query needs."""

from __future__ import annotations

from collections import defaultdict

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import QueryError
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import quote_name
from headrace.iceberg.schema.added_columns import hidden_columns
from headrace.serving.sql.engines.failures import failed, unread
from headrace.serving.sql.question import Mention, Question


def ask(catalog: Catalog, question: Question) -> pa.Table:
    """Return the result of one SELECT in Polars's SQL."""
    _need_aliases(question)
    store = dict(Storage.of(catalog.properties).options)
    frames = {name: _scan(catalog.load_table(name), store) for name in question.tables}
    try:
        return pl.SQLContext(frames).execute(question.rename(_name), eager=True).to_arrow()
    except PolarsError as error:
        raise failed("Polars", str(error)) from error
    except OSError as error:
        raise unread("Polars", str(error)) from error


def _scan(table: Table, store: dict[str, str]) -> pl.LazyFrame:
    """Return a table's rows, without the columns that are hidden."""
    rows, hidden = pl.scan_iceberg(table, storage_options=store), hidden_columns(table)
    return rows.drop(hidden) if hidden else rows


def _name(mention: Mention) -> str:
    """Return a table as Polars finds it: its whole name is one word, and what a query calls it is its last one."""
    if mention.is_column:
        return quote_name(mention.short)
    return quote_name(mention.table) + ("" if mention.alias else f" AS {quote_name(mention.short)}")


def _need_aliases(question: Question) -> None:
    """Raise a QueryError where two tables have the same last word and no alias: Polars could not tell them apart."""
    called: dict[str, set[str]] = defaultdict(set)
    for each in question.mentions:
        if not each.is_column:
            called[each.short].add(each.table)
    for short, tables in called.items():
        if len(tables) > 1:
            raise QueryError(
                f'{" and ".join(sorted(tables))} are both called "{short}" here',
                where="query",
                next_step="Give each of them a name of its own: FROM namespace.table AS name.",
            )
