"""Record in a table how long its snapshots stay, for the commits that thin its history."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.history import SNAPSHOTS_FOR, retention_of
from headrace.iceberg.pyiceberg_private.metadata_files import delete_old_metadata
from headrace.spec.model.pipeline import TableName


def record_retention(catalog: Catalog, name: TableName, seconds: float | None) -> None:
    """Record `snapshots_for` of the table's file in its properties, or remove it; None means that the file sets none.

    Idempotent: nothing is committed if the table has the value.
    """
    wanted = int((seconds or 0) * 1000)

    def commit() -> None:
        table = catalog.load_table(str(name))
        if retention_of(table.properties) == wanted:
            return
        update: TableUpdate = (
            SetPropertiesUpdate(updates={SNAPSHOTS_FOR: str(wanted)})
            if wanted
            else RemovePropertiesUpdate(removals=[SNAPSHOTS_FOR])
        )
        response = catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))
        delete_old_metadata(catalog, table, response.metadata)

    commit_once(commit, find=lambda: None, where=str(name))
