"""A catalog for those who look at many tables every few seconds: metadata is read again only where it has moved."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import select

from headrace.iceberg.catalog.properties import CATALOG_NAME
from headrace.iceberg.catalog.tables import EmptyCatalog, catalog_exists, open_catalog
from headrace.settings import Settings


class WatchedCatalog(NoopCatalog):
    """Tables as they were at the last `look`; all that is loaded between two looks is of one moment.

    In a database a look is one query, however many tables there are, and only what has moved is loaded again. Another catalog
    has no such query: there every table that is asked for is loaded once after each look. It is for reading: what it gives is
    shared.
    """

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog.name, **catalog.properties)
        self._catalog = catalog
        self._locations: dict[str, str] = {}
        self._loaded: dict[str, Table | None] = {}

    def look(self) -> None:
        """Ask where each table's metadata is now, and forget those that are gone."""
        if not isinstance(self._catalog, SqlCatalog):
            self._loaded = {}
            return
        columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
        with self._catalog.engine.connect() as connection:
            found = connection.execute(select(*columns).where(IcebergTables.catalog_name == self.name)).all()
        self._locations = {f"{namespace}.{name}": str(location) for namespace, name, location in found}
        loaded, now = self._loaded.items(), self._locations
        self._loaded = {name: table for name, table in loaded if table and table.metadata_location == now.get(name)}

    def load_table(self, identifier: str | Identifier) -> Table:
        name = identifier if isinstance(identifier, str) else ".".join(identifier)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        found = self._loaded[name]
        if found is None:
            raise NoSuchTableError(f"Table does not exist: {name}")
        return found

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return self._catalog.list_namespaces(namespace)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        return self._catalog.list_tables(namespace)

    def _load(self, name: str) -> Table | None:
        if isinstance(self._catalog, SqlCatalog) and name not in self._locations:
            return None
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            return None


def watch_catalog(settings: Settings) -> WatchedCatalog | EmptyCatalog:
    """Return the catalog of these settings, looked at once; one that does not exist yet is empty, and is not made."""
    if not catalog_exists(settings):
        return EmptyCatalog(CATALOG_NAME)
    catalog = WatchedCatalog(open_catalog(settings))
    catalog.look()
    return catalog
