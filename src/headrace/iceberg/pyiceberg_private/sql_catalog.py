"""PyIceberg's SQL catalog with fewer statements and cached metadata."""

from __future__ import annotations

from functools import cached_property

from pyiceberg.catalog import URI, Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Select, Update, bindparam, select, update
from sqlalchemy import Table as SqlTable

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.pyiceberg_private.metadata_files import IdempotentDeletes
from headrace.iceberg.pyiceberg_private.shared_metadata import share_metadata

_PARSED_TABLES = 256
"""How many tables' newest metadata is cached. Metadata files are immutable, so a cached one is never stale."""

_parsed: BoundedCache[tuple[str, Identifier], tuple[str, TableMetadata]] = BoundedCache(_PARSED_TABLES)
"""The newest metadata by catalog and table. All catalogs of the process share it: builds read what landing commits."""


class CachedSqlCatalog(IdempotentDeletes, SqlCatalog):
    """A SQL catalog that parses a table's newest metadata file once: a small build loads tables many times."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table with one plain query, without SQLAlchemy's ORM: a build loads about ten tables."""
        namespace, name = Catalog.namespace_from(identifier), Catalog.table_name_from(identifier)
        values = {"catalog": self.name, "namespace": Catalog.namespace_to_string(namespace), "name": name}
        with self.engine.connect() as connection:
            location = connection.scalar(self._find_location, values)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join((*namespace, name))}")
        return self._open((*namespace, name), location)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table, and cache the new metadata, so that this process does not parse it again."""
        committed = self._commit_existing(table, requirements, updates) or super().commit_table(table, requirements, updates)
        _parsed.put((self.properties[URI], table.name()), (committed.metadata_location, share_metadata(committed.metadata)))
        return committed

    def _commit_existing(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse | None:
        """Commit as PyIceberg does, with one plain statement; return None if the table does not exist or nothing changes.

        SQLAlchemy's ORM took longer than the database.
        """
        identifier = table.name()
        try:
            current = self.load_table(identifier)
        except NoSuchTableError:
            return None
        staged = self._update_and_stage_table(current, identifier, requirements, updates)
        if staged.metadata == current.metadata or not self.engine.dialect.supports_sane_rowcount:
            return None
        self._write_metadata(metadata=staged.metadata, io=staged.io, metadata_path=staged.metadata_location)
        values = {
            "catalog": self.name,
            "namespace": Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
            "name": Catalog.table_name_from(identifier),
            "before": current.metadata_location,
            "after": staged.metadata_location,
        }
        with self.engine.begin() as connection:
            if connection.execute(self._move_location, values).rowcount < 1:
                raise CommitFailedException(f"Table has been updated by another process: {'.'.join(identifier)}")
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)  # type: ignore[call-arg]

    @cached_property
    def _move_location(self) -> Update:
        """The statement that replaces a table's metadata location, if it is still the one that the commit was based on."""
        rows = IcebergTables.__table__
        assert isinstance(rows, SqlTable)
        return (
            update(rows)
            .where(
                rows.c.catalog_name == bindparam("catalog"),
                rows.c.table_namespace == bindparam("namespace"),
                rows.c.table_name == bindparam("name"),
                rows.c.metadata_location == bindparam("before"),
            )
            .values(metadata_location=bindparam("after"), previous_metadata_location=bindparam("before"))
        )

    @cached_property
    def _find_location(self) -> Select[str | None]:
        """The query for a table's metadata location."""
        query = select(IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == bindparam("catalog"),
            IcebergTables.table_namespace == bindparam("namespace"),
            IcebergTables.table_name == bindparam("name"),
        )
        only_tables = self._iceberg_type_filter()
        return query if only_tables is None else query.where(only_tables)

    def _open(self, identifier: Identifier, location: str) -> Table:
        key = (self.properties[URI], identifier)
        known, metadata = _parsed.get(key) or (None, None)
        if metadata is None or known != location:
            io = load_file_io(properties=self.properties, location=location)
            metadata = share_metadata(FromInputFile.table_metadata(io.new_input(location)))
            _parsed.put(key, (location, metadata))
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)
