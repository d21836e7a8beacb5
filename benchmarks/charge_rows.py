"""Charges as rows, for the benchmarks of layers: many, quickly, and fixed by their numbers."""

from __future__ import annotations

from datetime import datetime, timezone

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY_MS = 24 * 60 * 60 * 1000
_CUSTOMERS = 20_000
_MERCHANTS = 400
_NOBODY = 1_000
"""One charge of so many has no customer."""
_PROVIDERS = ("STRIPE", "BRAINTREE", "ADYEN", "WORLDPAY", "SQUARE")
_CURRENCIES = ("USD", "USD", "EUR", "GBP", "CAD")
_METHODS = ("card", "card", "wallet", "bank_debit")
_BRANDS = ("visa", "mastercard", "amex", "discover")
_COUNTRIES = ("US", "US", "DE", "GB", "CA", "FR", "AU", "JP")
_YES_OR_NO = ("true", "false")


def number_charges(first: int, count: int) -> pl.DataFrame:
    """Gives back the numbers of charges that follow one another."""
    return pl.select(number=pl.int_range(first, first + count, dtype=pl.Int64))


def draw(seed: int, below: int) -> pl.Expr:
    """Gives back a whole number that is fixed by the charge's number and the seed."""
    return (pl.col("number").hash(seed) % below).cast(pl.Int64)


def charge_rows(charges: pl.DataFrame) -> pa.Table:
    """Gives back the rows of charges: `number`, `created_ms` since START, and `version`, which is 0 until a charge changes.

    Some customers pay far more often than others, as in life.
    """
    customer = ((draw(1, 1_000_000) / 1_000_000) ** 3 * _CUSTOMERS).cast(pl.Int64)
    start = int(START.timestamp() * 1000)
    created = pl.col("created_ms") + start
    frame = charges.select(
        event_id=pl.format("evt_{}", pl.col("number").hash(2)),
        charge_id=pl.format("ch_{}", pl.col("number").hash(3)),
        customer_id=pl.when(draw(4, _NOBODY) > 0).then(pl.format("cus_{}", customer.hash(5))),
        merchant_id=pl.format("merch_{}", draw(6, _MERCHANTS).hash(5)),
        provider=_one_of(_PROVIDERS, 7),
        cents=draw(8, 200_000) + pl.col("version"),
        currency=_one_of(_CURRENCIES, 9),
        payment_method_type=_one_of(_METHODS, 10),
        card_brand=_one_of(_BRANDS, 11),
        card_country=_one_of(_COUNTRIES, 12),
        billing_country=_one_of(_COUNTRIES, 13),
        authenticated=_one_of(_YES_OR_NO, 14),
        risk_score=((draw(15, 100) + pl.col("version")) % 100).cast(pl.Int32),
        created_at=created.cast(pl.Datetime("ms", "UTC")),
        updated_at=(created + pl.col("version") * 1000).cast(pl.Datetime("ms", "UTC")),
    )
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    cents = pc.multiply(table["cents"].cast(pa.decimal128(19, 0)), pa.scalar("0.01").cast(pa.decimal128(3, 2)))
    place = table.schema.get_field_index("cents")
    table = table.set_column(place, "amount", cents.cast(pa.decimal128(10, 2)))
    return table.rename_columns({"authenticated": "3ds_authenticated"})


def _one_of(values: tuple[str, ...], seed: int) -> pl.Expr:
    return draw(seed, len(values)).replace_strict(dict(enumerate(values)), return_dtype=pl.String)
