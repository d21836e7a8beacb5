"""Read which person each row belongs to from pipeline.yml: `people: {streams: …, entities: …, requests: …}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.spec.loading.document import Section, Value
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier, parse_table_name
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import ErasureRequests, People, PersonColumns, Stream, TableName
from headrace.spec.problems import Problems, suggest

if TYPE_CHECKING:
    from sqlglot import exp

KEY = "people"
DIALECT = "spark"
ENTITY_COLUMNS = ("entity_id", "source", "source_id")
"""The columns that a table of entities must have. `email`, `email_normalized`, `phone` and `phone_normalized` are optional."""

_PERSON_KEYS = ("email", "phone", "ids", "text")


def read_people(
    section: Section, *, streams: Sequence[Stream], tables: Sequence[LayerTable], problems: Problems
) -> People | None:
    """Return the person columns of the pipeline, or None if it declares none. Errors are collected in `problems`."""
    value = section.find(KEY)
    people = value and problems.attempt(value.section, ("streams", "entities", "requests"), problems=problems)
    if not people:
        return None
    by_name = {stream.name: stream for stream in streams}
    declared = problems.attempt(_read_streams, people, by_name, problems)
    entities = people.find("entities")
    table = None if entities is None else problems.attempt(_find_entities, entities, tables)
    requests = people.find("requests")
    items = () if requests is None else problems.attempt(requests.items) or ()
    erasure_requests = [problems.attempt(_read_requests, item, by_name, problems) for item in items]
    return People(declared or {}, table, tuple(request for request in erasure_requests if request is not None))


def _read_streams(section: Section, by_name: Mapping[str, Stream], problems: Problems) -> Mapping[str, PersonColumns]:
    value = section.need("streams", example="{customers: {email: email, ids: {shop: id}}}")
    columns: dict[str, PersonColumns] = {}
    for name, entry in value.section(None, problems=problems).values.items():
        stream = problems.attempt(_find_stream, name, entry, by_name)
        inner = stream and problems.attempt(entry.section, _PERSON_KEYS, problems=problems)
        whose = stream and inner and problems.attempt(_read_person_columns, inner, stream, problems)
        if whose:
            columns[name] = whose
    return MappingProxyType(columns)


def _find_stream(name: str, value: Value, by_name: Mapping[str, Stream], *, at_key: bool = True) -> Stream:
    if name not in by_name:
        error = value.key_error if at_key else value.error
        hint = suggest(name, by_name, plural="Streams")
        raise error(f'"{name}" is not a stream of this pipeline', fix=f"{hint} Fix the name")
    return by_name[name]


def _read_person_columns(section: Section, stream: Stream, problems: Problems) -> PersonColumns:
    """Return the expressions under `email`, `phone`, `ids` and `text`. At least one of these keys is required."""
    if not any(section.find(key) for key in _PERSON_KEYS):
        raise section.value.key_error(
            f'"{section.value.key}" names no person columns', fix=f"Add one of: {', '.join(_PERSON_KEYS)}"
        )
    ids = section.find("ids")
    kinds: dict[str, tuple[str, ...]] = {}
    for kind, value in ids.section(None, problems=problems).values.items() if ids else ():
        if not is_identifier(kind):
            problems.errors.append(value.key_error(f'"{kind}" is not a valid name of ids', fix=f"Use {IDENTIFIER_RULE}"))
        kinds[kind] = _expressions(value, stream, problems)
    email, phone, text = (section.find(key) for key in ("email", "phone", "text"))
    return PersonColumns(
        _expressions(email, stream, problems) if email else (),
        _expressions(phone, stream, problems) if phone else (),
        MappingProxyType(kinds),
        _without_none(problems.attempt(_column, item, stream) for item in _list_items(text)) if text else (),
    )


def _list_items(value: Value) -> tuple[Value, ...]:
    return value.items() if value.is_list() else (value,)


def _expressions(value: Value, stream: Stream, problems: Problems) -> tuple[str, ...]:
    return _without_none(problems.attempt(_expression, item, stream) for item in _list_items(value))


def _without_none(read: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(expression for expression in read if expression is not None)


def _expression(value: Value, stream: Stream) -> str:
    """Return a Spark SQL expression over columns of the stream's raw table."""
    from sqlglot import exp

    written = value.text(example="lower(email)").strip()
    tree = _parse(value, written)
    if tree.find(exp.Query, exp.AggFunc, exp.Window):
        raise value.error(f"the expression must be over one row, not: {written}", fix="Use columns and scalar functions only")
    names = [column.name for column in landed_columns(stream)]
    lowered = {name.lower(): name for name in names}
    used = list(tree.find_all(exp.Column))
    for column in used:
        parts = [part.name for part in column.parts]
        if parts[0].lower() not in lowered:
            hint = suggest(parts[0], names, plural="Columns")
            raise value.error(f'"{parts[0]}" is not a column of {stream.table}', fix=f"{hint} Fix the name")
        _check_partitioning(value, stream, lowered[parts[0].lower()])
    if not used:
        raise value.error(f"{written} names no column of {stream.table}", fix="Name at least one column")
    return written


def _check_partitioning(value: Value, stream: Stream, column: str) -> None:
    """Raise a SpecError if partition values, which are part of file names, would hold a column that identifies people.

    The commit log keeps file names after the files are deleted.
    """
    for transform in stream.partition_by:
        if transform.column == column and transform.name in ("identity", "truncate") and value.key != "where":
            raise value.error(
                f'{stream.table} is partitioned by {transform}, so its file names contain people\'s "{column}"',
                fix=f"Partition it by bucket(16, {column}) or by a time",
            )


def _column(value: Value, stream: Stream) -> str:
    written = value.text(example="payload")
    names = [column.name for column in landed_columns(stream)]
    if written not in names:
        hint = suggest(written, names, plural="Columns")
        raise value.error(f'"{written}" is not a column of {stream.table}', fix=f"{hint} Fix the name")
    return written


def _parse(value: Value, written: str) -> exp.Expr:
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    try:
        return sqlglot.parse_one(written, dialect=DIALECT)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = f'not valid SQL: {first.get("description", error)}, at "{first.get("highlight", "")}"'
        raise value.error(what, fix="Fix the expression") from None
    except SqlglotError as error:
        raise value.error(f"not valid SQL: {error}", fix="Fix the expression") from None
    except RecursionError:
        raise value.error("the expression is nested too deeply", fix="Write it with fewer levels") from None


def _find_entities(value: Value, tables: Sequence[LayerTable]) -> TableName:
    name = parse_table_name(value.text(example="semantic.entity_index"), value)
    table = next((layer_table for layer_table in tables if layer_table.table == name), None)
    if table is None:
        hint = suggest(str(name), [str(layer_table.table) for layer_table in tables], plural="Layer tables")
        raise value.error(f'"{name}" is not a layer table of this pipeline', fix=f"{hint} Fix the name")
    if table.kind == "entities" and set(table.keys) != set(ENTITY_COLUMNS[1:]):
        wanted = ", ".join(ENTITY_COLUMNS[1:])
        raise value.error(f"{name} must have the keys [{wanted}], not [{', '.join(table.keys)}]", fix="Change its keys")
    return name


def _read_requests(value: Value, by_name: Mapping[str, Stream], problems: Problems) -> ErasureRequests | None:
    section = value.section(("from", "where", "id", "email", "phone", "ids"), problems=problems)
    source = section.need("from", example="webhooks")
    stream = _find_stream(source.text(), source, by_name, at_key=False)
    where = problems.attempt(lambda: _expression(section.need("where", example="type = 'customers/redact'"), stream))
    identity = problems.attempt(lambda: _expression(section.need("id", example="event_id"), stream))
    whose = problems.attempt(_read_person_columns, section, stream, problems)
    if where is None or identity is None or whose is None:
        return None
    return ErasureRequests(stream.name, where, identity, whose)
