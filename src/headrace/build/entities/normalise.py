"""Normalise match values: email addresses and phone numbers. Pure: columns in, columns out.

Invalid addresses and numbers become null, and match no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from headrace.spec.model.matching import EmailRules, Match

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber

_GMAIL = ("gmail.com", "googlemail.com")
_LONGEST_ADDRESS = 254
_CACHED_NUMBERS = 1 << 16


def normalise(rows: pl.DataFrame, matches: Sequence[Match]) -> pl.DataFrame:
    """Return the rows with a column of normalised values for each match."""
    return rows.with_columns(_normalised(rows, match).alias(match.column) for match in matches)


def _normalised(rows: pl.DataFrame, match: Match) -> pl.Series:
    if match.how == "email":
        return rows.select(email_expression(pl.col(match.source), match.email)).to_series()
    if match.how == "phone":
        return _phones(rows, match)
    return rows.select(pl.when(pl.col(match.source) != "").then(pl.col(match.source))).to_series()


def email_expression(written: pl.Expr, rules: EmailRules) -> pl.Expr:
    """Return an address without the parts that don't distinguish mailboxes. Domains are always lowercase.

    Plus tags are removed for every provider, dots only for Gmail, whose two domains are equivalent.
    """
    address = written.str.strip_chars()
    name = address.str.extract(r"^(.+)@[^@]+$")
    domain = address.str.extract(r"@([^@]+)$").str.to_lowercase()
    if rules.case:
        name = name.str.to_lowercase()
    if rules.plus_tags:
        name = name.str.replace(r"^([^+]+)\+.*$", "$1")
    if rules.dots:
        is_gmail = domain.is_in(_GMAIL)
        name = pl.when(is_gmail).then(name.str.replace_all(".", "", literal=True)).otherwise(name)
        domain = pl.when(is_gmail).then(pl.lit(_GMAIL[0])).otherwise(domain)
    is_address = (
        address.str.contains(r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$") & (address.str.len_bytes() <= _LONGEST_ADDRESS) & (name != "")
    )
    return pl.when(is_address).then(pl.concat_str(name, pl.lit("@"), domain))


def _phones(rows: pl.DataFrame, match: Match) -> pl.Series:
    """Return numbers in international format; each spelling is parsed once."""
    region = pl.col(match.region_column).str.strip_chars().str.to_uppercase() if match.region_column else pl.lit(match.region)
    written = rows.select(pl.col(match.source).alias("written"), region.cast(pl.String).alias("region"))
    spellings = written.filter(pl.col("written").is_not_null()).unique()
    numbers = pl.Series(
        "number", [phone_number(text, where) for text, where in spellings.iter_rows()], dtype=pl.String, strict=True
    )
    parsed = written.join(
        spellings.with_columns(numbers), on=["written", "region"], how="left", nulls_equal=True, maintain_order="left"
    )
    return parsed["number"]


@lru_cache(maxsize=_CACHED_NUMBERS)
def phone_number(written: str, region: str | None) -> str | None:
    """Return a number such as +14155550123 with its extension, or None if its length is impossible."""
    import phonenumbers

    try:
        number: PhoneNumber = phonenumbers.parse(written, region if region in phonenumbers.SUPPORTED_REGIONS else None)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(number):
        return None
    text = str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))
    return f"{text};ext={number.extension}" if number.extension else text
