"""Exact matching in a table of kind entities: records that share a normalised value belong to one entity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from headrace.spec.loading.document import Section, Value
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier
from headrace.spec.problems import Problems, suggest

As = Literal["email", "phone", "exact"]
AS: tuple[As, ...] = get_args(As)

ENTITY_ID = "entity_id"
CONFIDENCE = "match_confidence"
PREVIOUS = "previous_entity_ids"
UNUSED = "unused_matches"
ENTITY_COLUMNS = (ENTITY_ID, CONFIDENCE, PREVIOUS, UNUSED)
"""The columns that a build adds to the records, besides the normalised columns."""

_REGION = re.compile(r"[A-Z]{2}")
_MAX_RECORDS = 50
LARGEST_ENTITY = 100
"""The default number of records above which a build warns that an entity may chain unrelated records."""
_RULES = {"email": ("case", "plus_tags", "dots"), "phone": ("region",), "exact": ()}


@dataclass(frozen=True)
class EmailRules:
    """The differences between two email addresses that matching ignores: `case`, `+tags`, and `dots` for some providers."""

    case: bool = True
    plus_tags: bool = True
    dots: bool = True


@dataclass(frozen=True)
class Match:
    """A column of normalised values. Records that share a value belong to one entity, unless more than `max_records` do.

    `region` is the default country of phone numbers without a country code, `region_column` a column that holds it.
    """

    column: str
    source: str
    how: As
    email: EmailRules = EmailRules()
    region: str | None = None
    region_column: str | None = None
    max_records: int = _MAX_RECORDS
    line: int = field(default=0, compare=False, repr=False)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the query that the values are computed from."""
        return (self.source, *((self.region_column,) if self.region_column else ()))


def entity_columns(matches: Sequence[Match], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of an entities table over these columns. Each match column follows its source column."""
    names = [ENTITY_ID]
    for name in columns:
        names += [name, *(match.column for match in matches if match.source == name)]
    rest = [match.column for match in matches if match.column not in names]
    return (*names, *rest, CONFIDENCE, PREVIOUS, UNUSED)


def read_matches(value: Value, *, problems: Problems) -> tuple[Match, ...]:
    """Return the match columns. Errors are collected in `problems`."""
    matches = []
    for name, entry in value.section(None, problems=problems).values.items():
        match = problems.attempt(_read_match, name, entry, problems=problems)
        if match is not None:
            matches.append(match)
    return tuple(matches)


def _read_match(name: str, value: Value, *, problems: Problems) -> Match:
    if not is_identifier(name) or name in ENTITY_COLUMNS:
        raise value.key_error(f'"{name}" is not a valid name of a match column', fix=f"Use another name: {IDENTIFIER_RULE}")
    known = ("from", "as", "max_records", *(rule for rules in _RULES.values() for rule in rules))
    section = value.section(known, problems=problems)
    how = section.need("as", example="email").choice(AS)
    for others, rules in _RULES.items():
        for rule in rules:
            written = section.find(rule)
            if others != how and written is not None:
                raise written.key_error(f"{rule} has no effect in a match as {how}", fix=f"Remove {rule}")
    limit = section.find("max_records")
    region, region_column = _read_region(section)
    return Match(
        name,
        section.need("from", example="email").text(),
        how,
        email=EmailRules(**{rule: _is_on(section, rule) for rule in _RULES["email"]}),
        region=region,
        region_column=region_column,
        max_records=_MAX_RECORDS if limit is None else limit.whole_number(at_least=2, at_most=1_000_000),
        line=value.key_line,
    )


def _is_on(section: Section, key: str) -> bool:
    value = section.find(key)
    return True if value is None else value.boolean()


def _read_region(section: Section) -> tuple[str | None, str | None]:
    """Return a country code, or the column that holds it."""
    value = section.find("region")
    if value is None:
        return None, None
    written = value.text(example="US")
    if not _REGION.fullmatch(written):
        return None, written
    from phonenumbers import SUPPORTED_REGIONS

    if written not in SUPPORTED_REGIONS:
        hint = suggest(written, sorted(SUPPORTED_REGIONS), plural="Codes")
        raise value.error(f'unknown country code "{written}"', fix=f"{hint} Fix the code, or name a column")
    return written, None
