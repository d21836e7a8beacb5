"""Query tables with Polars, which reads only the columns and files that a query needs."""

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
from headrace.iceberg.snapshots.as_of import as_of
from headrace.serving.sql.engines.failures import query_error, storage_error
from headrace.serving.sql.question import Mention, Question


def ask(catalog: Catalog, question: Question) -> pa.Table:
    """Return the result of one SELECT in Polars's SQL."""
    _check_aliases(question)
    store = dict(Storage.of(catalog.properties).options)
    frames = {name: scan_table(catalog.load_table(name), store, question.snapshots.get(name)) for name in question.tables}
    try:
        return pl.SQLContext(frames).execute(question.rename(_name), eager=True).to_arrow()
    except PolarsError as error:
        raise query_error("Polars", str(error)) from error
    except OSError as error:
        raise storage_error("Polars", str(error)) from error


def scan_table(table: Table, store: dict[str, str], snapshot_id: int | None = None) -> pl.LazyFrame:
    """Return the rows of a table, or of one of its snapshots, without its hidden columns."""
    rows = pl.scan_iceberg(table, snapshot_id=snapshot_id, storage_options=store)
    hidden = hidden_columns(as_of(table, snapshot_id))
    return rows.drop(hidden) if hidden else rows


def _name(mention: Mention) -> str:
    """Return a table's name for Polars: the full name as one identifier, with its last part as alias."""
    if mention.is_column:
        return quote_name(mention.short)
    return quote_name(mention.table) + ("" if mention.alias else f" AS {quote_name(mention.short)}")


def _check_aliases(question: Question) -> None:
    """Raise a QueryError if two tables have the same last part of the name and no alias, which is ambiguous in Polars."""
    called: dict[str, set[str]] = defaultdict(set)
    for mention in question.mentions:
        if not mention.is_column:
            called[mention.short].add(mention.table)
    for short, tables in called.items():
        if len(tables) > 1:
            raise QueryError(
                f'the name "{short}" is ambiguous: it means {" and ".join(sorted(tables))}',
                where="query",
                next_step="Give each table an alias: FROM namespace.table AS name.",
            )
