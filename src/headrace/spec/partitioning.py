"""Parts of a table's partitioning as text: `hours(event_time)`, `bucket(16, customer_id)`, `country`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.spec.document import Value
from headrace.spec.pipeline import Transform, TransformName
from headrace.spec.problems import suggest
from headrace.spec.types import ColumnType, Decimal, Primitive

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
"""The column types that Iceberg allows under each transform."""

WITH_ARGUMENT = ("bucket", "truncate")
TIME = ("years", "months", "days", "hours")
MAX_ARGUMENT = 2**31 - 1


def read_partitioning(value: Value, *, types: Mapping[str, ColumnType]) -> tuple[Transform, ...]:
    """Gives back the transforms of a list, each of which fits a column in `types`."""
    transforms = read_transforms(value)
    for transform, item in zip(transforms, value.items(), strict=True):
        problem = transform_problem(transform, types=types)
        if problem:
            raise item.error(problem[0], fix=problem[1])
    return transforms


def read_transforms(value: Value) -> tuple[Transform, ...]:
    """Gives back the transforms of a list as they are written, whatever the columns turn out to be."""
    transforms: list[Transform] = []
    for item in value.items():
        transform = _read_transform(item)
        for other in transforms:
            if other.column == transform.column and _kind(other) == _kind(transform):
                raise item.error(f'"{item.text()}" and "{other}" say the same twice', fix="Keep one of them")
        transforms.append(transform)
    return tuple(transforms)


def transform_problem(transform: Transform, *, types: Mapping[str, ColumnType]) -> tuple[str, str] | None:
    """Gives back why a table with columns of these types can't be partitioned so, and what to do; None where it can."""
    name, column = transform.name, transform.column
    if column not in types:
        return f'"{column}" is not a column of this table', f"{suggest(column, types, plural='Columns')} Fix the name"
    kind = types[column]
    word = kind.name if isinstance(kind, Primitive) else "decimal" if isinstance(kind, Decimal) else "nested"
    if word not in FITS[name]:
        possible = ", ".join(other for other, fitting in FITS.items() if word in fitting) or "none"
        return f'{name} does not fit "{column}", which is {kind}', f"Transforms that fit: {possible}. Change the transform"
    if name != "identity" and transform.field_name in types:
        return (
            f'"{transform}" becomes the partition field "{transform.field_name}", and a column has that name',
            "Rename or leave out the column",
        )
    return None


def _read_transform(item: Value) -> Transform:
    written = item.text().strip()
    match = TRANSFORM.fullmatch(written)
    if not match and written.count("(") != written.count(")"):
        raise item.error(f'"{written}" has an open bracket', fix='Put it in quotes where it has a comma: "bucket(16, id)"')
    if not match:
        raise item.error(f'"{written}" is not a transform', fix="Write column, hours(column) or bucket(16, column)")
    name = _transform_name(item, match["name"])
    column = (match["inner"] or match["column"]).strip("`")
    argument = int(match["argument"]) if match["argument"] else None
    if (argument is not None) != (name in WITH_ARGUMENT):
        example = f"{name}(16, {column})" if name in WITH_ARGUMENT else f"{name}({column})"
        raise item.error(f'"{written}" is not how {name} is written', fix=f"Write {example}")
    if argument is not None and not 1 <= argument <= MAX_ARGUMENT:
        raise item.error(f'"{written}" needs a number from 1 to {MAX_ARGUMENT}', fix="Change the number")
    return Transform(name, column, argument)


def _transform_name(item: Value, written: str | None) -> TransformName:
    if written is None:
        return "identity"
    for name in FITS:
        if name == written:
            return name
    raise item.error(f'unknown transform "{written}"', fix=f"{suggest(written, FITS, plural='Transforms')} Fix the name")


def _kind(transform: Transform) -> str:
    return "time" if transform.name in TIME else transform.name
