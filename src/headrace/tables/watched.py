"""A catalog for those who look at many tables every few seconds: metadata is read again only where it has moved."""

from __future__ import annotations

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import select

from headrace.settings import Settings
from headrace.tables.catalog import CATALOG_NAME, EmptyCatalog, catalog_exists, open_catalog


class WatchedCatalog(SqlCatalog):
    """Tables as they were at the last `look`, which costs one query however many there are.

    All that is loaded between two looks is of one moment. It is for reading: what it gives is shared.
    """

    _locations: dict[str, str]
    _loaded: dict[str, Table]

    def look(self) -> None:
        """Asks where each table's metadata is now, and forgets those that are gone."""
        columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
        with self.engine.connect() as connection:
            found = connection.execute(select(*columns).where(IcebergTables.catalog_name == self.name)).all()
        self._locations = {f"{namespace}.{name}": str(location) for namespace, name, location in found}
        loaded = getattr(self, "_loaded", {})
        self._loaded = {name: table for name, table in loaded.items() if name in self._locations}

    def load_table(self, identifier: str | Identifier) -> Table:
        name = identifier if isinstance(identifier, str) else ".".join(identifier)
        location = self._locations.get(name)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {name}")
        known = self._loaded.get(name)
        if known is None or known.metadata_location != location:
            known = self._loaded[name] = super().load_table(name)
        return known


def watch_catalog(settings: Settings) -> WatchedCatalog | EmptyCatalog:
    """Gives back the catalog of these settings, looked at once; one that does not exist yet is empty, and is not made."""
    if not catalog_exists(settings):
        return EmptyCatalog(CATALOG_NAME)
    made = open_catalog(settings)
    catalog = WatchedCatalog(CATALOG_NAME, uri=made.properties["uri"], warehouse=settings.warehouse)
    catalog.look()
    return catalog
