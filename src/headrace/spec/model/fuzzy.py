"""How a table of kind entities tells that two records are alike: what is compared, which pairs, and how sure is sure enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, get_args

from headrace.spec.loading.document import Section, Value
from headrace.spec.problems import Problems

How = Literal["exact", "name", "email", "phone", "date"]
HOW: tuple[How, ...] = get_args(How)

AT_LEAST, AT_LEAST_TRAINED = 10.0, 6.0
"""The thresholds of a table that sets none, with fixed and with trained weights.

On 50,000 labelled records these are where long chains of strangers have gone: docs/reference/tables.md has the figures.
"""

_KEYS = ("compare", "block_on", "at_least", "train")
_LEAST, _MOST = 0, 99
_SEED = 1
_MOST_SEED = 2**31 - 1


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
    """Records that share a block are compared; a match weight of `at_least` or more makes them one entity.

    With `train`, a full refresh estimates the weights from the records, sampled by `seed`. Neither is part of the
    representation, which is part of a table's definition: tables without `train` keep theirs.
    """

    compare: tuple[Comparison, ...]
    block_on: tuple[Block, ...]
    at_least: float = AT_LEAST
    train: bool = field(default=False, repr=False)
    seed: int = field(default=_SEED, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared or that make blocks, each once."""
        blocks = (name for block in self.block_on for name in block.columns)
        return tuple(dict.fromkeys((*(each.column for each in self.compare), *blocks)))

    def how(self, column: str) -> How:
        """Return how a column is compared; one that only makes blocks is taken as it is."""
        return next((each.how for each in self.compare if each.column == column), "exact")


def read_fuzzy(value: Value, *, problems: Problems) -> Fuzzy:
    """Return the setting; mistakes in its keys are kept as problems."""
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
        raise value.key_error("nothing is compared", fix="Name a column, such as compare: {last_name: name}")
    found = {name: problems.attempt(each.choice, HOW) for name, each in columns.items()}
    return tuple(Comparison(name, how, columns[name].key_line) for name, how in found.items() if how is not None)


def _read_blocks(section: Section, *, problems: Problems) -> tuple[Block, ...]:
    value = section.need("block_on", example="[[last_name, postcode], [email]]")
    blocks = value.items()
    if not blocks:
        raise value.key_error("without blocks no two records are compared", fix="Name columns: block_on: [[last_name]]")
    found = [problems.attempt(_read_block, each) for each in blocks]
    return tuple(block for block in found if block is not None)


def _read_training(section: Section, *, problems: Problems) -> tuple[bool, int]:
    """Return whether weights are trained, and the seed: `train: true`, or `train: {seed: 7}`."""
    value = section.find("train")
    if value is None:
        return False, _SEED
    if not value.is_section():
        return value.truth(), _SEED
    seed = value.section(("seed",), problems=problems).need("seed", example="7")
    return True, seed.whole_number(at_least=0, at_most=_MOST_SEED)


def _read_block(value: Value) -> Block:
    """Return a block: `[last_name, postcode]`, or `email` for one column."""
    columns = (value.text(),) if value.is_text() else tuple(each.text() for each in value.items())
    if not columns:
        raise value.error("a block has no columns", fix="Name at least one column, or leave the block out")
    return Block(columns, value.key_line)


def has_splink() -> bool:
    """Return whether the package that compares records is installed."""
    return find_spec("splink") is not None
