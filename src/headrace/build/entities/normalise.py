"""Values to match by: email addresses and phone numbers written in one way. Pure: columns in, columns out.

What can't be an address or a number is null, and joins nobody.
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
_KEPT_NUMBERS = 1 << 16


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
    """Return an address without what does not tell mailboxes apart. A domain has no case whatever the rules say.

    Tags after a plus are left out for every provider, dots for Gmail alone, whose two names are one.
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
    """Return numbers in their international form; each spelling is read once."""
    region = pl.col(match.region_column).str.strip_chars().str.to_uppercase() if match.region_column else pl.lit(match.region)
    written = rows.select(pl.col(match.source).alias("written"), region.cast(pl.String).alias("region"))
    spellings = written.filter(pl.col("written").is_not_null()).unique()
    numbers = pl.Series(
        "number", [phone_number(each, where) for each, where in spellings.iter_rows()], dtype=pl.String, strict=True
    )
    found = written.join(
        spellings.with_columns(numbers), on=["written", "region"], how="left", nulls_equal=True, maintain_order="left"
    )
    return found["number"]


@lru_cache(maxsize=_KEPT_NUMBERS)
def phone_number(written: str, region: str | None) -> str | None:
    """Return a number such as +14155550123, or None where it has no possible length. An extension is a part of it."""
    import phonenumbers

    try:
        number: PhoneNumber = phonenumbers.parse(written, region if region in phonenumbers.SUPPORTED_REGIONS else None)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(number):
        return None
    text = str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))
    return f"{text};ext={number.extension}" if number.extension else text
