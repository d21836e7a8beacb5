"""Open the Iceberg catalog, and create and load Headrace's tables in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from headrace.backoff import CATALOG_TABLES
from headrace.errors import SettingsError, SpecError, UnavailableError
from headrace.iceberg.catalog.outages import find_outage
from headrace.iceberg.catalog.properties import CATALOG_NAME, catalog_properties, sqlite_path
from headrace.iceberg.catalog.registration import check_unregistered
from headrace.iceberg.files.row_counts import rows_after
from headrace.iceberg.pyiceberg_private.metadata_files import with_idempotent_deletes
from headrace.iceberg.pyiceberg_private.sql_catalog import CachedSqlCatalog
from headrace.iceberg.schema.columns import iceberg_schema, partition_spec
from headrace.iceberg.schema.widening import widen_table
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.model.types import Column

_LOCKED = "database is locked"
_EXTRAS = ("glue", "hive")  # catalog types whose clients are installed with the extra of that name

_PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
}


class EmptyCatalog(NoopCatalog):
    """Stands in for a catalog that does not exist yet: read-only and empty."""

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return []

    def load_table(self, identifier: str | Identifier) -> Table:
        raise NoSuchTableError(f"Table does not exist: {identifier}")

    def table_exists(self, identifier: str | Identifier) -> bool:
        return False


def find_catalog(settings: Settings) -> Catalog:
    """Return the catalog of these settings for reading. A catalog that does not exist yet is empty, and is not created."""
    return open_catalog(settings) if catalog_exists(settings) else EmptyCatalog(CATALOG_NAME, **catalog_properties(settings))


def catalog_exists(settings: Settings) -> bool:
    """Return whether the catalog exists. Only a SQLite file can be missing."""
    path = sqlite_path(settings)
    return path is None or path.exists()


def open_catalog(settings: Settings) -> Catalog:
    """Return the catalog of these settings; create it if it does not exist yet.

    Raises UnavailableError during an outage, and SettingsError if the address is no catalog or access is denied.
    """
    path = sqlite_path(settings)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        catalog = _make_catalog(settings)
        if path is not None and isinstance(catalog, SqlCatalog):
            with catalog.engine.connect() as connection:
                connection.execute(text("PRAGMA journal_mode=WAL"))
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        extra = f"[{settings.catalog_type}]" if settings.catalog_type in _EXTRAS else ""
        raise SettingsError(
            f"a {settings.catalog_type} catalog needs the package {package}, which is not installed",
            where="catalog.type",
            next_step=f"Run: pip install 'headrace{extra}'",
        ) from error
    except Exception as error:  # databases, HTTP clients, Thrift and the AWS SDK share no base class
        reason = settings.without_secrets(str(getattr(error, "orig", None) or error).splitlines()[0])
        check = "Check catalog.uri. To see its value and where it was set, run: headrace doctor"
        outage = find_outage(error)
        if outage is not None or _LOCKED in reason:
            what = settings.without_secrets(outage.what) if outage else f"the catalog does not answer: {reason}"
            raise UnavailableError(what, where="catalog.uri", next_step=check) from error
        raise SettingsError(f"the catalog can't be opened: {reason}", where="catalog.uri", next_step=check) from error
    return catalog


def _make_catalog(settings: Settings) -> Catalog:
    """Return the catalog."""
    properties = catalog_properties(settings)
    if settings.catalog_type != "sql":
        return _CATALOGS[settings.catalog_type](properties)
    return CATALOG_TABLES.retry(
        lambda: CachedSqlCatalog(CATALOG_NAME, **properties),
        on=lambda error: isinstance(
            error, (OperationalError, ProgrammingError, IntegrityError)
        ),  # Postgres raises the last two
    )


def _rest(properties: dict[str, str]) -> Catalog:
    from headrace.iceberg.pyiceberg_private.bounded_rest import BoundedRestCatalog

    return BoundedRestCatalog(CATALOG_NAME, **properties)


def _hive(properties: dict[str, str]) -> Catalog:
    from pyiceberg.catalog.hive import HiveCatalog

    return with_idempotent_deletes(HiveCatalog)(CATALOG_NAME, **properties)


def _glue(properties: dict[str, str]) -> Catalog:
    from pyiceberg.catalog.glue import GlueCatalog

    return with_idempotent_deletes(GlueCatalog)(CATALOG_NAME, **properties)


_CATALOGS: Mapping[str, Callable[[dict[str, str]], Catalog]] = {"rest": _rest, "hive": _hive, "glue": _glue}


def table_location(settings: Settings, name: TableName) -> str:
    return "/".join((settings.warehouse.rstrip("/"), *name.parts))


def ensure_table(
    catalog: Catalog,
    name: TableName,
    *,
    columns: tuple[Column, ...],
    partition_by: tuple[Transform, ...] = (),
    location: str,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Return the table, created or widened as needed.

    Missing columns are appended; no column is ever dropped or narrowed. Raises SpecError, before anything is written, for a
    type that can't be widened, and SettingsError if the folder holds a table that the catalog lacks.
    """
    try:
        table = catalog.load_table(str(name))
    except NoSuchTableError:
        _ensure_namespace(catalog, name)
        _check_name(catalog, name)
        check_unregistered(catalog, name, location)
        schema = iceberg_schema(columns)
        try:
            return catalog.create_table(
                str(name),
                schema=schema,
                location=location,
                partition_spec=partition_spec(partition_by, schema),
                properties={**_PROPERTIES, **(properties or {})},
            )
        except TableAlreadyExistsError:
            table = catalog.load_table(str(name))
    return widen_table(table, columns)


def _ensure_namespace(catalog: Catalog, name: TableName) -> None:
    try:
        catalog.create_namespace(name.namespace)
    except (NamespaceAlreadyExistsError, IntegrityError):
        pass  # IntegrityError: another application created it at the same time


def _check_name(catalog: Catalog, name: TableName) -> None:
    """Raise a SpecError if the table's name is a namespace, or its namespace is a table: their folders would be nested."""
    taken = f"{name} is already a namespace" if catalog.namespace_exists(str(name)) else None
    if "." in name.namespace and load_table(catalog, TableName.parse(name.namespace)):
        taken = f"{name.namespace} is already a table"
    if taken:
        raise SpecError(
            f"{taken}: a name is either a table or a namespace",
            where=str(name),
            next_step="Rename the table or its namespace.",
        )


def list_namespaces(catalog: Catalog, inside: Identifier = ()) -> Iterator[Identifier]:
    """Yield all namespaces, parents before children: a catalog lists one level at a time."""
    for namespace in sorted(catalog.list_namespaces(inside)):
        yield namespace
        yield from list_namespaces(catalog, namespace)


def list_tables(catalog: Catalog) -> tuple[str, ...]:
    """Return the names of all tables of the lake."""
    names = (".".join(table) for namespace in list_namespaces(catalog) for table in catalog.list_tables(namespace))
    return tuple(sorted(names))


def load_table(catalog: Catalog, name: TableName) -> Table | None:
    try:
        return catalog.load_table(str(name))
    except NoSuchTableError:
        return None


def count_rows(table: Table | None) -> int:
    """Return the row count in the current snapshot's summary; 0 without a table or a snapshot."""
    snapshot = table.current_snapshot() if table else None
    return rows_after(snapshot) if snapshot else 0
