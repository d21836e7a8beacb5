"""Convert the first rows of a result to JSON values for a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.serving.values import as_text, is_number

_EXACT = 2**53

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Answer:
    """The first rows of a result; `truncated` is whether there are more. Numbers that JSON can't hold exactly are text."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool
    seconds: float

    def to_json(self) -> dict[str, object]:
        return {
            "columns": [{"name": name, "type": kind, "number": is_number(kind)} for name, kind in self.columns],
            "rows": [list(row) for row in self.rows],
            "truncated": self.truncated,
            "seconds": round(self.seconds, 3),
        }

    def to_message(self) -> dict[str, object]:
        """Return the answer as a message to another process, which reads it with `from_message`."""
        return {"columns": self.columns, "rows": self.rows, "truncated": self.truncated}

    @classmethod
    def from_message(cls, message: Mapping[str, Any], *, seconds: float) -> Answer:
        columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
        return cls(columns, tuple(tuple(row) for row in message["rows"]), bool(message["truncated"]), seconds)


def make_answer(table: pa.Table, *, most_rows: int, seconds: float = 0.0) -> Answer:
    """Return the first `most_rows` rows of a table."""
    columns = tuple((str(field.name), str(field.type)) for field in table.schema)
    first = table.slice(0, most_rows)
    values: Sequence[Sequence[object]] = [first.column(at).to_pylist() for at in range(len(columns))]
    rows = tuple(tuple(as_cell(column[at]) for column in values) for at in range(first.num_rows))
    return Answer(columns, rows, table.num_rows > most_rows, seconds)


def as_cell(value: object) -> Cell:
    if value is None or isinstance(value, (bool, str)):
        return value
    if (isinstance(value, int) and abs(value) <= _EXACT) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return as_text(value, null="")
