"""Records of people in three sources, for the benchmark of entities: many, quickly, and fixed by their numbers."""

from __future__ import annotations

import polars as pl

SOURCES = ("shop", "pay", "crm")
_DAY_US = 24 * 60 * 60 * 1_000_000
_START_US = 1_767_225_600 * 1_000_000
_FIRST = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jan")
_LAST = ("Lee", "Okafor", "Silva", "Novak", "Meyer", "Rossi", "Haddad", "Kim", "Dubois", "Larsen")


def person_records(first: int, count: int, *, people: int) -> pl.DataFrame:
    """Return records by their numbers: of which person each is, and what its source knows of them.

    A person has one or two addresses and up to two numbers. Nine records of ten have an address, half have a number.
    """
    number = pl.col("number")
    person = _draw(1, people)
    address = person * 2 + (_draw(2, 5) == 0).cast(pl.Int64)
    phone = person * 2 + (_draw(3, 5) == 0).cast(pl.Int64)
    created = _START_US + _draw(4, 365) * _DAY_US + _draw(5, _DAY_US)
    frame = pl.select(number=pl.int_range(first, first + count, dtype=pl.Int64))
    return frame.select(
        source=pl.lit(pl.Series(SOURCES)).gather(number % len(SOURCES)),
        source_id=pl.format("{}", number),
        email=pl.when(_draw(6, 10) > 0).then(pl.format("p{}@example{}.com", address, address % 7)),
        phone=pl.when(_draw(7, 2) > 0).then(pl.format("+1415{}", pl.lit(2_000_000) + phone)),
        first_name=pl.lit(pl.Series(_FIRST)).gather(person % len(_FIRST)),
        last_name=pl.lit(pl.Series(_LAST)).gather(person // 10 % len(_LAST)),
        created_at=created.cast(pl.Datetime("us", "UTC")),
        updated_at=created.cast(pl.Datetime("us", "UTC")),
    )


def _draw(seed: int, below: int) -> pl.Expr:
    """Return a whole number that is fixed by the record's number and the seed."""
    return (pl.col("number").hash(seed) % below).cast(pl.Int64)
