"""Charges and merchants as rows, for the benchmarks of layers: many, quickly, and fixed by their numbers."""

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
PROVIDERS = ("STRIPE", "BRAINTREE", "ADYEN", "WORLDPAY", "SQUARE")
CURRENCIES = ("USD", "USD", "EUR", "GBP", "CAD")
_METHODS = ("card", "card", "wallet", "bank_debit")
_BRANDS = ("visa", "mastercard", "amex", "discover")
_COUNTRIES = ("US", "US", "DE", "GB", "CA", "FR", "AU", "JP")
_YES_OR_NO = ("true", "false")


def number_charges(first: int, count: int) -> pl.DataFrame:
    """Return the numbers of charges that follow one another."""
    return pl.select(number=pl.int_range(first, first + count, dtype=pl.Int64))


def draw(seed: int, below: int) -> pl.Expr:
    """Return a whole number that is fixed by the charge's number and the seed."""
    return (pl.col("number").hash(seed) % below).cast(pl.Int64)


CENTS = draw(8, 200_000) + pl.col("version")
"""What a charge amounts to."""


def charge_rows(charges: pl.DataFrame) -> pa.Table:
    """Return the rows of charges: `number`, `created_ms` since START, and `version`, which is 0 until a charge changes.

    `merchant` may be the number of the charge's merchant; without it, 400 merchants have about as many charges each. Some
    customers pay far more often than others, as in life.
    """
    merchant = pl.col("merchant") if "merchant" in charges.columns else draw(6, _MERCHANTS)
    customer = ((draw(1, 1_000_000) / 1_000_000) ** 3 * _CUSTOMERS).cast(pl.Int64)
    start = int(START.timestamp() * 1000)
    created = pl.col("created_ms") + start
    frame = charges.select(
        event_id=pl.format("evt_{}", pl.col("number").hash(2)),
        charge_id=pl.format("ch_{}", pl.col("number").hash(3)),
        customer_id=pl.when(draw(4, _NOBODY) > 0).then(pl.format("cus_{}", customer.hash(5))),
        merchant_id=_merchant_id(merchant),
        provider=_one_of(PROVIDERS, 7),
        cents=CENTS,
        currency=_one_of(CURRENCIES, 9),
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


def merchant_rows(merchants: pl.DataFrame) -> pa.Table:
    """Return the rows of merchants: `number`, and `version`, which is 0 until a merchant changes."""
    start = int(START.timestamp() * 1000)
    frame = merchants.select(
        merchant_id=_merchant_id(pl.col("number")),
        name=pl.format("Merchant {}, {}", pl.col("number"), pl.col("version")),
        country=_one_of(_COUNTRIES, 16),
        version=pl.col("version").cast(pl.Int32),
        updated_at=(start + pl.col("version") * 1000).cast(pl.Datetime("ms", "UTC")),
    )
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _merchant_id(number: pl.Expr) -> pl.Expr:
    return pl.format("merch_{}", number.hash(5))


def _one_of(values: tuple[str, ...], seed: int) -> pl.Expr:
    return draw(seed, len(values)).replace_strict(dict(enumerate(values)), return_dtype=pl.String)
