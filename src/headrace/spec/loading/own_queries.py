"""The queries of a pipeline.yml: example questions and the SQL that answers them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from headrace.spec.loading.document import Section, Value
from headrace.spec.loading.names import METADATA
from headrace.spec.model.pipeline import OwnQuery, TableName
from headrace.spec.problems import Problems, suggest

if TYPE_CHECKING:
    from sqlglot import exp

KEY = "queries"
DIALECT = "duckdb"


def read_queries(section: Section, *, tables: Collection[TableName], problems: Problems) -> tuple[OwnQuery, ...]:
    """Return the queries. An entry that is not one SELECT over the pipeline's tables is collected as an error."""
    value = section.find(KEY)
    questions = value and problems.attempt(value.section, None, problems=problems)
    queries = [
        problems.attempt(_read_query, entry, tables, problems) for entry in (questions.values.values() if questions else ())
    ]
    return tuple(query for query in queries if query is not None)


def check_demo_query(postgres: Value | None, *, tables: Collection[TableName], problems: Problems) -> None:
    """Check the query in `sources.postgres.by_hand.see`, which the demo runs on the pipeline's tables."""
    try:
        value = postgres and postgres.at("by_hand", "see")
    except KeyError:
        return
    if value and value.is_text():
        problems.attempt(_read_query, value, tables, problems)


def _read_query(value: Value, tables: Collection[TableName], problems: Problems) -> OwnQuery:
    sql = value.text(example='"SELECT count(*) FROM …"').strip()
    known = {str(table) for table in tables}
    for name in dict.fromkeys(_tables_of(_parse(value, sql))):
        if name not in known and not name.startswith(f"{METADATA}."):
            hint = suggest(name, sorted(known), plural="Tables")
            what = f'the query reads "{name}", which is not a table of this pipeline'
            problems.errors.append(value.error(what, fix=f"{hint} Fix the name"))
    return OwnQuery(value.key, sql)


def _parse(value: Value, sql: str) -> exp.Expr:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = f'not valid SQL: {first.get("description", error)}, at "{first.get("highlight", "")}"'
        raise value.error(what, fix="Fix the query") from None
    except SqlglotError as error:
        raise value.error(f"not valid SQL: {error}", fix="Fix the query") from None
    except RecursionError:
        raise value.error("the query is nested too deeply", fix="Split it into CTEs") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise value.error("a query must be one SELECT", fix="Write one SELECT for each question")
    return statements[0]


def _tables_of(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    local = {cte.alias for cte in tree.find_all(exp.CTE)}
    for node in tree.find_all(exp.Table):
        if node.name and not isinstance(node.this, exp.Func) and (node.db or node.name not in local):
            yield ".".join(part.name for part in node.parts)
