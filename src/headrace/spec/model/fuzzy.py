"""Fuzzy matching in a table of kind entities: the compared columns, the blocks of candidate pairs, and the threshold."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, get_args

from headrace.spec.loading.document import Section, Value
from headrace.spec.problems import Problems

How = Literal["exact", "name", "email", "phone", "date"]
HOW: tuple[How, ...] = get_args(How)

AT_LEAST, AT_LEAST_TRAINED = 10.0, 6.0
"""The default thresholds with fixed and with trained weights.

On 50,000 labelled records, long chains of unrelated records disappear at these values: see docs/reference/tables.md.
"""

_KEYS = ("compare", "block_on", "at_least", "train")
_LEAST, _MOST = 0, 99
_SEED = 1
_MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Comparison:
    """A column and the method that compares its values."""

    column: str
    how: How
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Block:
    """A blocking rule: two records are compared only if they are equal in all of these columns."""

    columns: tuple[str, ...]
    line: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Fuzzy:
    """Records in the same block are compared. A match weight of `at_least` or more makes them one entity.

    With `train`, a full refresh estimates the weights from a sample of the records drawn with `seed`. Both are left out of the
    repr, which is part of a table's definition, so that the definitions of tables without `train` do not change.
    """

    compare: tuple[Comparison, ...]
    block_on: tuple[Block, ...]
    at_least: float = AT_LEAST
    train: bool = field(default=False, repr=False)
    seed: int = field(default=_SEED, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared or used in blocks, without duplicates."""
        blocks = (name for block in self.block_on for name in block.columns)
        return tuple(dict.fromkeys((*(comparison.column for comparison in self.compare), *blocks)))

    def how(self, column: str) -> How:
        """Return how a column is compared: exactly if it is only used in blocks."""
        return next((comparison.how for comparison in self.compare if comparison.column == column), "exact")


def read_fuzzy(value: Value, *, problems: Problems) -> Fuzzy:
    """Return the setting. Errors in its keys are collected in `problems`."""
    section, attempt = value.section(_KEYS, problems=problems), problems.attempt
    compare = attempt(_read_compare, section, problems=problems)
    block_on = attempt(_read_blocks, section, problems=problems)
    train, seed = attempt(_read_training, section, problems=problems) or (False, _SEED)
    threshold, default = section.find("at_least"), AT_LEAST_TRAINED if train else AT_LEAST
    at_least = default if threshold is None else attempt(threshold.number, at_least=_LEAST, at_most=_MOST)
    return Fuzzy(compare or (), block_on or (), default if at_least is None else at_least, train, seed)


def _read_compare(section: Section, *, problems: Problems) -> tuple[Comparison, ...]:
    value = section.need("compare", example="{last_name: name, email: email}")
    columns = value.section(None, problems=problems).values
    if not columns:
        raise value.key_error("compare has no columns", fix="Add a column, such as compare: {last_name: name}")
    methods = {name: problems.attempt(value.choice, HOW) for name, value in columns.items()}
    return tuple(Comparison(name, how, columns[name].key_line) for name, how in methods.items() if how is not None)


def _read_blocks(section: Section, *, problems: Problems) -> tuple[Block, ...]:
    value = section.need("block_on", example="[[last_name, postcode], [email]]")
    blocks = value.items()
    if not blocks:
        raise value.key_error("block_on has no blocks", fix="Add a block, such as block_on: [[last_name]]")
    read_blocks = [problems.attempt(_read_block, block) for block in blocks]
    return tuple(block for block in read_blocks if block is not None)


def _read_training(section: Section, *, problems: Problems) -> tuple[bool, int]:
    """Return whether weights are trained, and the seed. Written as `train: true` or `train: {seed: 7}`."""
    value = section.find("train")
    if value is None:
        return False, _SEED
    if not value.is_section():
        return value.boolean(), _SEED
    seed = value.section(("seed",), problems=problems).need("seed", example="7")
    return True, seed.whole_number(at_least=0, at_most=_MOST_SEED)


def _read_block(value: Value) -> Block:
    """Return a block, written as `[last_name, postcode]`, or as `email` for one column."""
    columns = (value.text(),) if value.is_text() else tuple(item.text() for item in value.items())
    if not columns:
        raise value.error("the block has no columns", fix="Name at least one column, or remove the block")
    return Block(columns, value.key_line)


def has_splink() -> bool:
    """Return whether Splink, which compares records, is installed."""
    return find_spec("splink") is not None
