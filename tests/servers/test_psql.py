"""psql on a real Postgres."""

from __future__ import annotations

import pytest

from headrace.errors import ServiceError
from headrace.servers.libpq import environ_of
from headrace.servers.psql import run_statement


@pytest.mark.services
def test_run_statement_returns_the_output_or_the_error(database: str) -> None:
    assert run_statement(database, "CREATE TABLE things (id int)") == "CREATE TABLE"
    assert run_statement(database, "INSERT INTO things VALUES (1), (2)") == "INSERT 0 2"
    with pytest.raises(ServiceError, match='relation "nothing" does not exist') as refused:
        run_statement(database, "UPDATE nothing SET id = 1")
    assert refused.value.where == "UPDATE nothing SET id = 1"


def test_password_is_in_no_argument() -> None:
    environ = environ_of("postgresql://me:secret@example.com:5433/shop?sslmode=require")
    assert (environ["PGHOST"], environ["PGPORT"], environ["PGDATABASE"], environ["PGUSER"]) == (
        "example.com",
        "5433",
        "shop",
        "me",
    )
    assert (environ["PGPASSWORD"], environ["PGSSLMODE"]) == ("secret", "require")
