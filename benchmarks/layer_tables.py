"""The tables of the benchmark `layers`, one or more of each kind but `full`, and the changes that are measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.charge_lake import CHARGE_SCHEMA, CHARGES, RawTable

RAW_TABLES = (
    # All charges settle on one day: a key that has as many rows as the history.
    RawTable(CHARGES.name, f"{CHARGE_SCHEMA.rstrip()},\nsettled_at TIMESTAMP\n", CHARGES.partition_by),
    RawTable("merchants", "merchant_id STRING, name STRING, country STRING, version INT, updated_at TIMESTAMP"),
    RawTable(
        "persons",
        "source STRING, source_id STRING, email STRING, phone STRING, first_name STRING, last_name STRING,"
        " created_at TIMESTAMP, updated_at TIMESTAMP",
    ),
)

_COLUMNS = """event_id, charge_id, customer_id, merchant_id, provider, amount, currency, payment_method_type,
    card_brand, card_country, billing_country, risk_score, settled_at, created_at, updated_at"""

TABLES: Mapping[str, str] = {
    "core/appended.sql": f"""/*
partition_by: [days(created_at)]
*/
SELECT {_COLUMNS} FROM bench.raw_charges
""",
    "core/upserted.sql": f"""/*
keys: [event_id]
sequence_by: updated_at
constant: [created_at]
partition_by: [days(created_at)]
*/
SELECT {_COLUMNS} FROM bench.raw_charges
""",
    "core/versions.sql": f"""/*
keys: [event_id]
sequence_by: updated_at
stored_as_scd_type: 2
constant: [created_at]
partition_by: [days(created_at)]
*/
SELECT {_COLUMNS} FROM bench.raw_charges
""",
    "core/merchants.sql": """/*
keys: [merchant_id]
sequence_by: updated_at
*/
SELECT merchant_id, name, country, version, updated_at FROM bench.raw_merchants
""",
    "core/enriched.sql": """/*
keys: [event_id]
constant: [created_at]
partition_by: [days(created_at)]
*/
SELECT
    charge.event_id,
    charge.customer_id,
    charge.merchant_id,
    merchant.name AS merchant_name,
    merchant.country AS merchant_country,
    merchant.version AS merchant_version,
    merchant.country <> charge.billing_country AS is_abroad,
    charge.amount,
    charge.currency,
    charge.created_at
FROM bench.upserted AS charge
LEFT JOIN bench.merchants AS merchant ON merchant.merchant_id = charge.merchant_id
""",
    "features/features.sql": """/*
keys: [event_id]
partition_by: [days(created_at)]
constant: [created_at]
window: {partition_by: [customer_id], order_by: created_at, range: 1 hour}
*/
SELECT
    event_id,
    customer_id,
    amount,
    created_at,
    count(*) OVER last_hour AS charges_1h,
    sum(amount) OVER last_hour AS amount_1h,
    avg(risk_score) OVER last_hour AS risk_1h
FROM bench.upserted
WINDOW last_hour AS (
    PARTITION BY customer_id
    ORDER BY created_at
    RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW
)
""",
    "marts/daily.sql": """/*
keys: [day, provider, currency]
partition_by: [months(day)]
*/
SELECT
    date(created_at) AS day,
    provider,
    currency,
    count(*) AS charges,
    sum(amount) AS amount,
    min(amount) AS smallest,
    max(amount) AS largest,
    CAST(avg(amount) AS DECIMAL(12, 2)) AS average
FROM bench.upserted
GROUP BY date(created_at), provider, currency
""",
    "marts/hot_day.sql": """/*
keys: [day]
*/
SELECT
    date(settled_at) AS day,
    count(*) AS charges,
    sum(amount) AS amount,
    min(amount) AS smallest,
    max(amount) AS largest,
    CAST(avg(amount) AS DECIMAL(12, 2)) AS average
FROM bench.upserted
GROUP BY date(settled_at)
""",
    "semantic/entities.sql": """/*
kind: entities
keys: [source, source_id]
sequence_by: updated_at
oldest_by: created_at
match:
  email_normalized: {from: email, as: email}
  phone_normalized: {from: phone, as: phone}
*/
SELECT source, source_id, email, phone, first_name, last_name, created_at, updated_at FROM bench.raw_persons
""",
}

Change = Literal["charges", "merchants", "persons"]


@dataclass(frozen=True)
class Case:
    """A table that is built after a change, and how results name it.

    `upstream` is a table that has to be built before it and is not measured. With `refreshes`, a full refresh is measured, too.
    """

    name: str
    table: str
    change: Change
    upstream: str = ""
    refreshes: bool = False


CASES = (  # in the order in which tables read one another
    Case("append", "appended", "charges", refreshes=True),
    Case("upsert", "upserted", "charges", refreshes=True),
    Case("history", "versions", "charges"),
    Case("features", "features", "charges"),
    Case("aggregate by day", "daily", "charges"),
    Case("aggregate of one hot day", "hot_day", "charges"),
    Case("join, its driver changes", "enriched", "charges"),
    Case("join, its lookup changes", "enriched", "merchants", upstream="merchants"),
    Case("entities", "entities", "persons"),
)
