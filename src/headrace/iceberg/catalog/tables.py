"""The Iceberg catalog, and the tables in it that Headrace makes."""

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

from headrace.errors import SettingsError, SpecError, UnavailableError
from headrace.iceberg.catalog.outages import find_away
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

_TRIES = 2
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
    """A catalog that was not made yet: there is nothing in it, and nothing can be made in it."""

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return []

    def load_table(self, identifier: str | Identifier) -> Table:
        raise NoSuchTableError(f"Table does not exist: {identifier}")

    def table_exists(self, identifier: str | Identifier) -> bool:
        return False


def find_catalog(settings: Settings) -> Catalog:
    """Return the catalog of these settings for looking at: where it does not exist yet it is empty, and is not made."""
    return open_catalog(settings) if catalog_exists(settings) else EmptyCatalog(CATALOG_NAME, **catalog_properties(settings))


def catalog_exists(settings: Settings) -> bool:
    """Return whether the catalog was made; one that is not a file of SQLite counts as made."""
    path = sqlite_path(settings)
    return path is None or path.exists()


def open_catalog(settings: Settings) -> Catalog:
    """Return the catalog of these settings, made where it does not exist yet.

    One that is away is an UnavailableError, and one that is none, or that lets nobody in, a SettingsError.
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
    except Exception as error:  # a database's, an HTTP client's, Thrift's or Amazon's: each has its own
        reason = settings.without_secrets(str(getattr(error, "orig", None) or error).splitlines()[0])
        check = "Check it: headrace doctor says what it is, and where that was set."
        away = find_away(error)
        if away is not None or _LOCKED in reason:
            what = settings.without_secrets(away.what) if away else f"the catalog does not answer: {reason}"
            raise UnavailableError(what, where="catalog.uri", next_step=check) from error
        raise SettingsError(f"the catalog can't be opened: {reason}", where="catalog.uri", next_step=check) from error
    return catalog


def _make_catalog(settings: Settings) -> Catalog:
    """Return the catalog; two applications that make its tables at once both find them made at the second try."""
    properties = catalog_properties(settings)
    if settings.catalog_type != "sql":
        return _CATALOGS[settings.catalog_type](properties)
    for _ in range(_TRIES):
        try:
            return CachedSqlCatalog(CATALOG_NAME, **properties)
        except (OperationalError, ProgrammingError, IntegrityError):  # the last two are what Postgres says of it
            continue
    return CachedSqlCatalog(CATALOG_NAME, **properties)


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
    """Return the table, made or widened as needed.

    Columns that the pipeline names and the table lacks are added at its end; nothing is ever dropped or narrowed. A type that
    can't be widened is a SpecError before anything is written. A folder that holds a table which the catalog lacks is a
    SettingsError.
    """
    try:
        table = catalog.load_table(str(name))
    except NoSuchTableError:
        _ensure_namespace(catalog, name)
        _check_place(catalog, name)
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
        pass  # IntegrityError: another application makes it at this moment


def _check_place(catalog: Catalog, name: TableName) -> None:
    """Raise a SpecError where a table would be in the folder of another one, or have another one in its own."""
    taken = f"{name} is a namespace" if catalog.namespace_exists(str(name)) else None
    if "." in name.namespace and load_table(catalog, TableName.parse(name.namespace)):
        taken = f"{name.namespace} is a table"
    if taken:
        raise SpecError(
            f"{taken} already, and nothing can be both",
            where=str(name),
            next_step="Give the table, or its namespace, another name.",
        )


def list_namespaces(catalog: Catalog, inside: Identifier = ()) -> Iterator[Identifier]:
    """Yield all namespaces, each before those that are in it: a catalog lists one level at a time."""
    for each in sorted(catalog.list_namespaces(inside)):
        yield each
        yield from list_namespaces(catalog, each)


def list_tables(catalog: Catalog) -> tuple[str, ...]:
    """Return the names of all tables of the lake."""
    found = (".".join(table) for each in list_namespaces(catalog) for table in catalog.list_tables(each))
    return tuple(sorted(found))


def load_table(catalog: Catalog, name: TableName) -> Table | None:
    try:
        return catalog.load_table(str(name))
    except NoSuchTableError:
        return None


def count_rows(table: Table | None) -> int:
    """Return how many rows the current snapshot says the table has; 0 where there is no table or no snapshot."""
    snapshot = table.current_snapshot() if table else None
    return rows_after(snapshot) if snapshot else 0
