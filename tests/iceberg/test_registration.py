"""A catalog is emptied or replaced while the tables' folders still exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import NotFoundError, SettingsError
from headrace.iceberg.catalog import registration
from headrace.iceberg.catalog.registration import find_unregistered, register_tables
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.operations.verify.inspection import commits_of, need_landed
from headrace.settings import Settings, load_settings
from headrace.spec import TableName, load_pipeline
from headrace.spec.model.types import Column, Primitive
from tests.iceberg.tables import add_files, numbers, write_files

NAMES = (TableName("raw", "numbers"), TableName("stage.shop", "numbers"), TableName("metadata", "numbers"))


@pytest.fixture(autouse=True)
def no_concurrent_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for other applications, of which there are none, for two looks at the catalog and not for twenty."""
    monkeypatch.setattr(registration, "_CREATED_WITHIN_SECONDS", 0.2)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={}, environ={}, folder=tmp_path)


def ensure(catalog: Catalog, settings: Settings, name: TableName = NAMES[0]) -> Table:
    columns = (Column("n", Primitive("long")),)
    return ensure_table(catalog, name, columns=columns, location=table_location(settings, name))


def land(catalog: Catalog, table: Table, *, first: int) -> Table:
    planned = read_ledger(table)
    new = Ledger(planned.checkpoint_id + 1, {0: first + 3}, f"writer {first}")
    return append_checkpoint(catalog, table, files=write_files(table, rows=3, first=first), planned=planned, new=new)


def empty_the_catalog(settings: Settings) -> Catalog:
    for path in settings.home.glob("catalog.db*"):
        path.unlink()
    return open_catalog(settings)


def test_ensure_table_rejects_a_folder_with_an_unregistered_table(settings: Settings) -> None:
    catalog = open_catalog(settings)
    land(catalog, ensure(catalog, settings), first=0)
    catalog = empty_the_catalog(settings)
    with pytest.raises(SettingsError, match=r"the catalog has no table raw\.numbers, but .* holds one with 3 rows") as raised:
        ensure(catalog, settings)
    assert "headrace register" in raised.value.next_step
    assert "move the folder away" in raised.value.next_step
    assert not catalog.table_exists("raw.numbers")


def test_ensure_table_recreates_a_table_without_data(settings: Settings) -> None:
    ensure(open_catalog(settings), settings)
    assert ensure(empty_the_catalog(settings), settings).current_snapshot() is None


def test_register_tables_continues_from_ledgers(settings: Settings) -> None:
    catalog = open_catalog(settings)
    for name in NAMES:
        table = land(catalog, ensure(catalog, settings, name), first=0)
        land(catalog, add_files(table), first=3)
    catalog = empty_the_catalog(settings)
    registered = register_tables(catalog, settings.warehouse)
    assert [(str(table.name), table.rows) for table in registered] == [
        ("metadata.numbers", 8),
        ("raw.numbers", 8),
        ("stage.shop.numbers", 8),
    ]
    assert find_unregistered(catalog, settings.warehouse) == ()
    table = ensure(catalog, settings)
    assert dict(read_ledger(table).offsets) == {0: 6}
    assert numbers(catalog, land(catalog, table, first=6)) == [-1, -1, *range(9)]


@pytest.mark.parametrize("catalog_is_made", [False, True])
def test_verify_and_commits_stop_at_a_table_that_the_catalog_lost(settings: Settings, catalog_is_made: bool) -> None:
    catalog = open_catalog(settings)
    pipeline = load_pipeline("lineage", environ={}, folder=settings.folder)
    land(catalog, ensure(catalog, settings, pipeline.streams[0].table), first=0)
    land(catalog, ensure(catalog, settings, QUARANTINE), first=0)
    catalog = empty_the_catalog(settings)
    if catalog_is_made:
        register_tables(catalog, settings.warehouse, [QUARANTINE])
    else:
        (settings.home / "catalog.db").unlink()
    with pytest.raises(
        SettingsError, match=r"the catalog has no table lineage\.events, but .* holds one with 3 rows"
    ) as raised:
        need_landed(settings, pipeline)
    assert "headrace register" in raised.value.next_step
    with pytest.raises(SettingsError, match="the catalog has no table"):
        commits_of(settings, pipeline, checkpoint_id=None)
    assert (settings.home / "catalog.db").exists() == catalog_is_made, "verify looks, and makes nothing"


def test_verify_stops_where_the_catalog_lost_the_quarantine(settings: Settings) -> None:
    catalog = open_catalog(settings)
    pipeline = load_pipeline("lineage", environ={}, folder=settings.folder)
    land(catalog, ensure(catalog, settings, pipeline.streams[0].table), first=0)
    land(catalog, ensure(catalog, settings, QUARANTINE), first=0)
    register_tables(empty_the_catalog(settings), settings.warehouse, [pipeline.streams[0].table])
    with pytest.raises(SettingsError, match=r"the catalog has no table metadata\.quarantine"):
        need_landed(settings, pipeline)


def test_one_table_is_registered_by_name(settings: Settings) -> None:
    catalog = open_catalog(settings)
    for name in NAMES:
        land(catalog, ensure(catalog, settings, name), first=0)
    catalog = empty_the_catalog(settings)
    with pytest.raises(NotFoundError, match="not found: a table with data in"):
        register_tables(catalog, settings.warehouse, [TableName("raw", "others")])
    assert [table.name for table in register_tables(catalog, settings.warehouse, NAMES[:1])] == [NAMES[0]]
    assert register_tables(catalog, settings.warehouse, NAMES[:1]) == ()
    assert [table.name for table in find_unregistered(catalog, settings.warehouse)] == [NAMES[2], NAMES[1]]


def test_newest_of_two_metadata_files_of_one_version_is_registered(settings: Settings) -> None:
    """A commit that lost a race leaves its file behind."""
    catalog = open_catalog(settings)
    table = land(catalog, ensure(catalog, settings), first=0)
    newest = Path(table.metadata_location.removeprefix("file://"))
    lost = newest.with_name(f"{newest.name.split('-')[0]}-00000000-0000-0000-0000-000000000000.metadata.json")
    older = newest.read_text().replace(
        f'"last-updated-ms":{table.metadata.last_updated_ms}', f'"last-updated-ms":{table.metadata.last_updated_ms - 1}'
    )
    lost.write_text(older)
    (registered,) = register_tables(empty_the_catalog(settings), settings.warehouse)
    assert registered.metadata_location.endswith(newest.name)


@pytest.mark.parametrize("left", [0, 100])
def test_register_tables_skips_incomplete_metadata(settings: Settings, left: int) -> None:
    catalog = open_catalog(settings)
    table = land(catalog, ensure(catalog, settings), first=0)
    newest = Path(table.metadata_location.removeprefix("file://"))
    newest.with_name("00009-00000000-0000-0000-0000-000000000000.metadata.json").write_text(newest.read_text()[:left])
    (registered,) = register_tables(empty_the_catalog(settings), settings.warehouse)
    assert registered.metadata_location.endswith(newest.name)


def test_ensure_table_after_a_crashed_creation(settings: Settings) -> None:
    folder = Path(table_location(settings, NAMES[0]).removeprefix("file://")) / "metadata"
    folder.mkdir(parents=True)
    (folder / "00000-00000000-0000-0000-0000-000000000000.metadata.json").write_text("{")
    assert ensure(open_catalog(settings), settings).current_snapshot() is None


def test_register_lists_what_it_adds(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = open_catalog(settings)
    land(catalog, ensure(catalog, settings), first=0)
    empty_the_catalog(settings)
    monkeypatch.chdir(settings.folder)
    runner = CliRunner()
    assert "raw.numbers: 3 rows\n" in runner.invoke(app, ["register", "--dry-run"]).output
    assert "raw.numbers: 3 rows, registered\n" in runner.invoke(app, ["register"]).output
    assert "The catalog has every table" in runner.invoke(app, ["register"]).output
