"""The shop's seeder: what `headrace seed serve storefront` does to fill the shop, to play its customers, and to change it.

The server gives a connection in a transaction, which it commits; random numbers and times come from it too.
"""

from __future__ import annotations

from datetime import date, datetime
from random import Random

from psycopg import Connection, sql

from . import changing, filling, traffic

_ACTS = {**traffic.ACTS, changing.use_changes: 40}


def seed(
    connection: Connection,
    random: Random,
    until: date,
    customers: int = 1_000,
    products: int = 200,
    orders: int = 3_000,
    replace: bool = False,
) -> dict[str, int] | None:
    """Fill the shop, and return how many rows each table has; None if it is filled already and `replace` is not given."""
    if filling.is_filled(connection):
        if not replace:
            return None
        filling.empty(connection)
    filling.fill(connection, random, until=until, customers=customers, products=products, orders=orders)
    counted = (sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)) for table in filling.TABLES)
    counts = [connection.execute(query).fetchone() for query in counted]
    return {table: count[0] if count else 0 for table, count in zip(filling.TABLES, counts, strict=True)}


def act(connection: Connection, random: Random, now: datetime) -> str:
    """Do one thing that customers or the shop's people do, and return its name."""
    chosen = random.choices(list(_ACTS), weights=list(_ACTS.values()))[0]
    chosen(connection, random, now)
    return chosen.__name__


def change_schema(connection: Connection) -> str | None:
    """Make the next change to the shop's tables, and return which; None if there is none left."""
    return changing.change_next(connection)
