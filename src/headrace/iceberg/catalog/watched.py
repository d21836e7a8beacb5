"""A catalog for polling many tables every few seconds: it reloads only metadata that has changed."""

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
    """Tables as of the last `look`: everything loaded between two looks is from the same moment.

    In a SQL catalog a look is one query, however many tables there are, and only changed tables are loaded again. Other
    catalogs have no such query: there every requested table is loaded once after each look. Read-only: the returned tables are
    shared.
    """

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog.name, **catalog.properties)
        self._catalog = catalog
        self._locations: dict[str, str] = {}
        self._loaded: dict[str, Table | None] = {}

    def look(self) -> None:
        """Fetch the current metadata location of each table, and drop cached tables that changed or are gone."""
        if not isinstance(self._catalog, SqlCatalog):
            self._loaded = {}
            return
        columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
        with self._catalog.engine.connect() as connection:
            rows = connection.execute(select(*columns).where(IcebergTables.catalog_name == self.name)).all()
        self._locations = {f"{namespace}.{name}": str(location) for namespace, name, location in rows}
        loaded, now = self._loaded.items(), self._locations
        self._loaded = {name: table for name, table in loaded if table and table.metadata_location == now.get(name)}

    def load_table(self, identifier: str | Identifier) -> Table:
        name = identifier if isinstance(identifier, str) else ".".join(identifier)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        table = self._loaded[name]
        if table is None:
            raise NoSuchTableError(f"Table does not exist: {name}")
        return table

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
    """Return the catalog of these settings after a first look. A catalog that does not exist yet is empty, and is not
    created."""
    if not catalog_exists(settings):
        return EmptyCatalog(CATALOG_NAME)
    catalog = WatchedCatalog(open_catalog(settings))
    catalog.look()
    return catalog
