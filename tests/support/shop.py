"""A small pipeline with a table of every kind, for tests of what is said of tables without building them."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "pipeline.yml": """\
name: shop
about: charges of a shop
streams:
  charges:
    topic: shop_charges
    partitions: 1
    format: json
    schema: schemas/charge.sql
    table: raw.charges
    event_time: {column: happened, from: at, unit: s}
""",
    "schemas/charge.sql": """\
id STRING NOT NULL, at BIGINT, amount DECIMAL(10,2), customerId STRING, status STRING, country STRING,
updated_at TIMESTAMP, metadata STRUCT<ip: STRING>
""",
    "staging/charges.sql": """\
/*
about: The newest state of each charge. Curly {{ braces }} are nothing special here.
keys: [id]
sequence_by: updated_at
apply_as_deletes: status = 'DELETED'
except_column_list: [offset]
expect:
  the amount is positive: {that: amount > 0, on_failure: drop}
  the country is known: {that: country IS NOT NULL, on_failure: quarantine}
  the address is known: ip IS NOT NULL
  the charge has a customer: {that: customerId IS NOT NULL, on_failure: fail}
*/
WITH seen AS (
  SELECT *, upper(trim(status)) AS state, metadata.ip AS ip FROM raw.charges  -- {{ not jinja }}
)
SELECT id, customerId, cast(amount AS DECIMAL(12,2)) AS amount, state AS status, country, ip, updated_at, kafka_offset AS offset
FROM seen AS s
WHERE at > 0
""",
    "staging/customers.sql": """\
/*
keys: [customerId]
sequence_by: updated_at
stored_as_scd_type: 2
apply_as_deletes: status = 'deleted'
track_history_except_column_list: [status]
*/
SELECT customerId, country, status, updated_at FROM raw.charges AS c
""",
    "staging/log.sql": "SELECT id, date_trunc('hour', updated_at) AS hour FROM raw.charges AS c\n",
    "features/score.py": '''\
from headrace import table


@table(keys=["id"], kind="aggregate")
def score(charges):
    """Points for charges."""
    return charges.selectExpr("id", "length(id) AS points")
''',
    "features/spending.sql": """\
/*
keys: [id]
window: {partition_by: [customerId], order_by: updated_at, range: 1h}
*/
SELECT id, customerId, updated_at, sum(amount) OVER an_hour AS spent
FROM staging.charges AS c
WINDOW an_hour AS (PARTITION BY customerId ORDER BY updated_at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)
""",
    "marts/by_country.sql": """\
/*
keys: [country]
*/
SELECT c.country, count(*) AS charges, sum(c.amount) AS total, max(v.valid_from) AS since
FROM staging.charges AS c
LEFT JOIN staging.customers AS v ON v.customerId = c.customerId AND v.is_current
GROUP BY c.country
""",
    "marts/all_ids.sql": """\
/*
kind: full
*/
SELECT id, 'charge' AS what, points * 2 AS points FROM features.score AS s
UNION ALL
SELECT customerId, 'customer', length(country) FROM staging.customers AS c WHERE is_current
""",
}


def write_shop(folder: Path) -> Path:
    """Write the pipeline to ./pipelines/shop, and return its folder."""
    home = folder / "pipelines" / "shop"
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return home
