"""Read partition transforms: `hours(event_time)`, `bucket(16, customer_id)`, `country`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.spec.loading.document import Value
from headrace.spec.model.pipeline import Transform, TransformName
from headrace.spec.model.types import ColumnType, Decimal, Primitive
from headrace.spec.problems import Problems, suggest

TRANSFORM = re.compile(
    r"(?:(?P<name>\w+)\s*\(\s*(?:(?P<argument>\d+)\s*,\s*)?(?P<inner>`[^`]+`|\w+)\s*\)|(?P<column>`[^`]+`|\w+))"
)
DATES = frozenset(("date", "timestamp", "timestamp_ntz"))
FITS: Mapping[TransformName, frozenset[str]] = {
    "identity": frozenset(
        (
            "boolean",
            "int",
            "long",
            "float",
            "double",
            "date",
            "timestamp",
            "timestamp_ntz",
            "string",
            "binary",
            "decimal",
        )
    ),
    "years": DATES,
    "months": DATES,
    "days": DATES,
    "hours": DATES - {"date"},
    "bucket": DATES | {"int", "long", "decimal", "string", "binary"},
    "truncate": frozenset(("int", "long", "decimal", "string", "binary")),
}
"""The column types that Iceberg allows for each transform."""

WITH_ARGUMENT = ("bucket", "truncate")
TIME = ("years", "months", "days", "hours")
MAX_ARGUMENT = 2**31 - 1


def read_partitioning(value: Value, *, types: Mapping[str, ColumnType], problems: Problems) -> tuple[Transform, ...]:
    """Return the transforms of a list, checked against the columns in `types`. Errors are collected in `problems`."""
    read = _read_items(value, problems=problems)
    for transform, item in read:
        problem = transform_problem(transform, types=types)
        if problem:
            problems.errors.append(item.error(problem[0], fix=problem[1]))
    return tuple(transform for transform, _ in read)


def read_transforms(value: Value, *, problems: Problems) -> tuple[Transform, ...]:
    """Return the transforms of a list without checking their columns."""
    return tuple(transform for transform, _ in _read_items(value, problems=problems))


def _read_items(value: Value, *, problems: Problems) -> list[tuple[Transform, Value]]:
    transforms: list[tuple[Transform, Value]] = []
    is_open = False
    for item in value.items():
        if is_open:  # YAML split bucket(16, id) at its comma, which is reported already
            is_open = ")" not in _written(item)
            continue
        transform = problems.attempt(_read_transform, item)
        if transform is None:
            is_open = "(" in _written(item) and ")" not in _written(item)
            continue
        same = next(
            (other for other, _ in transforms if other.column == transform.column and _kind(other) == _kind(transform)), None
        )
        if same:
            problems.errors.append(item.error(f'"{item.text()}" and "{same}" are redundant', fix="Remove one of them"))
        else:
            transforms.append((transform, item))
    return transforms


def transform_problem(transform: Transform, *, types: Mapping[str, ColumnType]) -> tuple[str, str] | None:
    """Return why a transform is invalid for columns of these types and what to do, or None if it is valid."""
    name, column = transform.name, transform.column
    if column not in types:
        return f'"{column}" is not a column of this table', f"{suggest(column, types, plural='Columns')} Fix the name"
    kind = types[column]
    word = kind.name if isinstance(kind, Primitive) else "decimal" if isinstance(kind, Decimal) else "nested"
    if word not in FITS[name]:
        possible = ", ".join(other for other, fitting in FITS.items() if word in fitting) or "none"
        return f'{name} does not support "{column}", which is {kind}', f"Supported transforms: {possible}. Change the transform"
    if name != "identity" and transform.field_name in types:
        return (
            f'the partition field "{transform.field_name}" of "{transform}" has the name of a column',
            "Rename or remove the column",
        )
    return None


def _read_transform(item: Value) -> Transform:
    written = item.text().strip()
    match = TRANSFORM.fullmatch(written)
    if not match and written.count("(") != written.count(")"):
        raise item.error(f'unbalanced bracket in "{written}"', fix='Quote a transform that contains a comma: "bucket(16, id)"')
    if not match:
        raise item.error(f'"{written}" is not a valid transform', fix="Write column, hours(column) or bucket(16, column)")
    name = _transform_name(item, match["name"])
    column = (match["inner"] or match["column"]).strip("`")
    argument = int(match["argument"]) if match["argument"] else None
    if (argument is not None) != (name in WITH_ARGUMENT):
        example = f"{name}(16, {column})" if name in WITH_ARGUMENT else f"{name}({column})"
        raise item.error(f'wrong arguments of {name} in "{written}"', fix=f"Write {example}")
    if argument is not None and not 1 <= argument <= MAX_ARGUMENT:
        raise item.error(f'the number in "{written}" must be from 1 to {MAX_ARGUMENT}', fix="Change the number")
    return Transform(name, column, argument)


def _written(item: Value) -> str:
    return str(item.node.value) if item.is_text() else ""


def _transform_name(item: Value, written: str | None) -> TransformName:
    if written is None:
        return "identity"
    for name in FITS:
        if name == written:
            return name
    raise item.error(f'unknown transform "{written}"', fix=f"{suggest(written, FITS, plural='Transforms')} Fix the name")


def _kind(transform: Transform) -> str:
    return "time" if transform.name in TIME else transform.name
