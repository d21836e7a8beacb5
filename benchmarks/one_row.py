"""One row changed in Postgres, seen in the mart: the way of a single change through capture, landing, stage, shape and serve.

`headrace run storefront` runs in a process of its own with its default settings. A product's name is changed, and the clock
stops when a committed snapshot of `serve.storefront.product_performance` has the new name.
"""

from __future__ import annotations

import time
from statistics import median

import psycopg
from pyiceberg.catalog import Catalog

from benchmarks.bench import Bench
from benchmarks.commands import headrace, wait_for
from benchmarks.results import Bar, at_most
from headrace.iceberg.catalog.tables import load_table, open_catalog
from headrace.iceberg.rows.filters import column_is
from headrace.servers.postgres import postgres
from headrace.servers.source_database import ready_database
from headrace.settings import load_settings
from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import TableName

WARM_UPS, CHANGES = 10, 20
MOST_MEDIAN = 2.0
_MART = TableName("serve.storefront", "product_performance")
_START_SECONDS = 300.0
_SEEN_SECONDS = 120.0
_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.01
_SHOP = (
    "INSERT INTO customers (public_id, email, full_name) VALUES (gen_random_uuid(), 'bench@example.com', 'Bench')",
    "INSERT INTO products (sku, name, price) SELECT 'sku-' || n, 'product ' || n, n FROM generate_series(1, 100) AS n",
    "INSERT INTO orders (customer_id, total) SELECT 1, n FROM generate_series(1, 1000) AS n",
    "INSERT INTO order_items (order_id, line, product_id, quantity, unit_price)"
    " SELECT n, 1, 1 + n % 100, 1, 10 FROM generate_series(1, 1000) AS n",
)


def measure_one_row(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return how long single changes took, after some to warm up."""
    folder = bench.new_home("one-row")
    folder.mkdir()
    settings = load_settings(flags={}, environ={}, folder=folder)
    catalog = open_catalog(settings)
    capture = load_pipeline("storefront", environ={}, folder=folder).capture
    assert capture is not None
    ages = []
    with (
        postgres(settings, report=bench.say),
        headrace(bench, folder, "run", "storefront") as application,
        psycopg.connect(ready_database(settings, capture, report=bench.say).dsn, autocommit=True) as connection,
    ):
        for statement in _SHOP:
            connection.execute(statement)
        wait_for(lambda: _has(catalog, "product 7"), [application], seconds=_START_SECONDS, what="the mart was not built")
        for number in range(WARM_UPS + CHANGES):
            time.sleep(_PAUSE_SECONDS)
            name = f"renamed {number}"
            connection.execute("UPDATE products SET name = %s WHERE id = 8", (name,))
            started = time.monotonic()
            wait_for(
                lambda name=name: _has(catalog, name),  # type: ignore[misc]
                [application],
                seconds=_SEEN_SECONDS,
                what="the change was not seen",
                every=_LOOK_SECONDS,
            )
            ages.append(time.monotonic() - started)
            bench.say(f"One row: {ages[-1]:.2f} s")
    measured = sorted(ages[WARM_UPS:])
    rows: list[dict[str, object]] = [
        {
            "case": "psql to serve.storefront.product_performance",
            "changes": CHANGES,
            "median_seconds": round(median(measured), 2),
            "slowest_seconds": round(measured[-1], 2),
        }
    ]
    return rows, (at_most(MOST_MEDIAN, median(measured), name="p50 of one row from psql to serve in seconds"),)


def _has(catalog: Catalog, name: str) -> bool:
    table = load_table(catalog, _MART)
    if table is None or table.current_snapshot() is None:
        return False
    return bool(table.scan(row_filter=column_is("name", name), limit=1).to_arrow().num_rows)
