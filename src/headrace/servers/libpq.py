"""Pass connection strings to libpq programs through their environment, because command lines are public."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict

_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "options": "PGOPTIONS",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}


def environ_of(dsn: str) -> dict[str, str]:
    """Return the libpq environment variables of a connection string."""
    parts = conninfo_to_dict(dsn)
    return {variable: str(parts[name]) for name, variable in _VARIABLES.items() if parts.get(name) is not None}
