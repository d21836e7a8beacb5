"""How a table of kind entities tells that two records are alike: what is compared, which pairs, and how sure is sure enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, get_args

from headrace.spec.document import Value
from headrace.spec.problems import Problems

How = Literal["exact", "name", "email", "phone", "date"]
HOW: tuple[How, ...] = get_args(How)

_KEYS = ("compare", "block_on", "at_least")
_LEAST, _MOST = 0, 99


@dataclass(frozen=True)
class Comparison:
    """A column, and how its values are compared."""

    column: str
    how: How
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Block:
    """Columns in all of which two records must be equal to be compared."""

    columns: tuple[str, ...]
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Fuzzy:
    """Records that share a block are compared; a match weight of `at_least` or more makes them one entity."""

    compare: tuple[Comparison, ...]
    block_on: tuple[Block, ...]
    at_least: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared or that make blocks, each once."""
        blocks = (name for block in self.block_on for name in block.columns)
        return tuple(dict.fromkeys((*(each.column for each in self.compare), *blocks)))

    def how(self, column: str) -> How:
        """Gives back how a column is compared; one that only makes blocks is taken as it is."""
        return next((each.how for each in self.compare if each.column == column), "exact")


def read_fuzzy(value: Value, *, problems: Problems) -> Fuzzy:
    """Gives back the setting; a mistake is a SpecError."""
    section = value.section(_KEYS, problems=problems)
    compared = section.need("compare", example="{last_name: name, email: email}")
    compare = [
        Comparison(name, each.choice(HOW), each.key_line)
        for name, each in compared.section(None, problems=problems).values.items()
    ]
    if not compare:
        raise compared.key_error("nothing is compared", fix="Name a column, such as compare: {last_name: name}")
    blocks = section.need("block_on", example="[[last_name, postcode], [email]]")
    block_on = [_read_block(each) for each in blocks.items()]
    if not block_on:
        raise blocks.key_error("without blocks no two records are compared", fix="Name columns: block_on: [[last_name]]")
    return Fuzzy(tuple(compare), tuple(block_on), section.need("at_least", example="6").number(at_least=_LEAST, at_most=_MOST))


def _read_block(value: Value) -> Block:
    """Gives back a block: `[last_name, postcode]`, or `email` for one column."""
    columns = (value.text(),) if value.is_text() else tuple(each.text() for each in value.items())
    if not columns:
        raise value.error("a block has no columns", fix="Name at least one column, or leave the block out")
    return Block(columns, value.key_line)


def has_splink() -> bool:
    """Gives back whether the package that compares records is installed."""
    return find_spec("splink") is not None
