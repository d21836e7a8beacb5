"""Records of persons with the truth beside them: a seeded stand-in for Splink's 50,000 historical persons.

A person has one to six records. In each of them a value may be missing, mistyped, shortened or wrong, as in data that was typed
off certificates. Names, places and occupations are drawn with the skew of real ones: few are common, many are rare.
"""

from __future__ import annotations

from datetime import date, timedelta
from random import Random
from typing import Any

import polars as pl

# fmt: off
_STARTS = (
    "Ab", "Al", "An", "Ar", "Be", "Br", "Ca", "Ch", "Cl", "Da", "De", "Do", "Ed", "El", "Er", "Fr", "Ge", "Gr", "Ha",
    "He", "Ho", "Hu", "Is", "Ja", "Jo", "Ka", "La", "Le", "Lo", "Ma", "Mi", "Mo", "Na", "Ni", "Ol", "Os", "Pa", "Pe",
    "Ra", "Ri", "Ro",
)
_MIDDLES = (
    "l", "la", "na", "ri", "ber", "ton", "na", "th", "ro", "li", "vi", "mi", "se", "da", "ge", "lo", "ne", "ra", "ta",
    "ve", "wi", "xa", "yo", "ca",
)
_ENDS = (
    "n", "a", "e", "s", "ie", "y", "el", "ard", "ert", "ine", "as", "ey", "ley", "son", "ton", "man", "ford", "field",
    "wood", "well", "by", "ham", "worth", "den",
)
# fmt: on
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 3
_RELATIVES = 0.05
"""How many persons are brothers and sisters of another one: the same name, house and place of birth, a few years apart."""
_RECORDS = (1, 1, 2, 2, 3, 3, 4, 5, 6)
SCHEMA = {
    "person": pl.Int64,
    "record": pl.String,
    "first_name": pl.String,
    "last_name": pl.String,
    "born_on": pl.Date,
    "postcode": pl.String,
    "birth_place": pl.String,
    "occupation": pl.String,
}


def labelled_records(count: int, *, seed: int = 7) -> pl.DataFrame:
    """Return records in random order; those of one `person` belong together."""
    random = Random(seed)
    first, last = _words(random, 400), _words(random, 4_000)
    places, jobs = _words(random, 800), _words(random, 60)
    postcodes = [
        f"{random.choice('ABCDEGHLNPSTW')}{random.choice('ABDLNRST')}{random.randrange(1, 30)} {number}"
        for number in range(9_000)
    ]
    rows: list[dict[str, Any]] = []
    person = 0
    truth: dict[str, Any] = {}
    while len(rows) < count:
        person += 1
        relative = truth if truth and random.random() < _RELATIVES else None
        truth = {
            "first_name": _skewed(random, first),
            "last_name": _skewed(random, last),
            "born_on": date(1800, 1, 1) + timedelta(days=random.randrange(36_500)),
            "postcode": random.choice(postcodes),
            "birth_place": _skewed(random, places),
            "occupation": _skewed(random, jobs),
        }
        if relative:
            born = relative["born_on"] + timedelta(days=random.randrange(-3_000, 3_000))
            truth |= {"born_on": born, **{name: relative[name] for name in ("last_name", "postcode", "birth_place")}}
        others = {"postcode": random.choice(postcodes), "occupation": _skewed(random, jobs), "last_name": _skewed(random, last)}
        for _ in range(min(random.choice(_RECORDS), count - len(rows))):
            rows.append({"person": person, "record": f"r{len(rows):06}", **_written(random, truth, others)})
    random.shuffle(rows)
    return pl.DataFrame(rows, schema=SCHEMA)


def _written(random: Random, truth: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return what one record says of a person."""
    record = dict(truth)
    for name, chance in (("postcode", 0.25), ("occupation", 0.2), ("last_name", 0.04)):
        if random.random() < chance:
            record[name] = others[name]
    if random.random() < 0.08:
        record["first_name"] = str(record["first_name"])[:_SHORTEST]
    for name in ("first_name", "last_name", "birth_place"):
        if random.random() < 0.15:
            record[name] = _mistyped(random, str(record[name]))
    day = record["born_on"]
    if random.random() < 0.15:
        record["born_on"] = random.choice(
            (day + timedelta(days=1), day.replace(day=1), day.replace(year=day.year + 1, day=1, month=1))
        )
    for name, chance in (("born_on", 0.1), ("postcode", 0.15), ("birth_place", 0.1), ("occupation", 0.4), ("first_name", 0.02)):
        if random.random() < chance:
            record[name] = None
    return record


def _mistyped(random: Random, text: str) -> str:
    place = random.randrange(len(text))
    kind = random.randrange(4)
    if kind == 0:
        return text[:place] + random.choice(_LETTERS) + text[place:]
    if kind == 1:
        return text[:place] + text[place + 1 :]
    if kind == 2:
        return text[:place] + random.choice(_LETTERS) + text[place + 1 :]
    return text[:place] + text[place + 1 : place + 2] + text[place : place + 1] + text[place + 2 :]


def _words(random: Random, count: int) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        middle = "".join(random.choice(_MIDDLES) for _ in range(random.choice((1, 1, 2))))
        words[random.choice(_STARTS) + middle + random.choice(_ENDS)] = None
    return list(words)


def _skewed(random: Random, words: list[str]) -> str:
    """Return one of the words; the first are drawn far more often, as with names (Zipf)."""
    return words[min(int(len(words) ** random.random()) - 1, len(words) - 1)]
