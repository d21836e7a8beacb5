"""The captured database: migrations, the user's own server, and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.errors import ServiceError, UnavailableError
from headrace.servers.migrations import migrate
from headrace.servers.source_database import (
    drop_publication,
    drop_slot,
    find_database,
    publish_tables,
    read_slot,
    ready_database,
)
from headrace.settings import load_settings
from headrace.spec.model.pipeline import Capture
from tests.support.folders import write_files

pytestmark = pytest.mark.services


def ask(dsn: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def test_migrations_are_applied_once_and_in_order(database: str, tmp_path: Path) -> None:
    first = {"V1_2__fill.sql": "INSERT INTO a VALUES (1)", "V1_1__make.sql": "CREATE TABLE a (id INT)"}
    folder = write_files(tmp_path / "migrations", first)
    assert migrate(database, folder=folder) == 2
    assert migrate(database, folder=folder) == 0
    (folder / "V1_10__more.sql").write_text("INSERT INTO a VALUES (2); INSERT INTO a VALUES (3)", encoding="utf-8")
    assert migrate(database, folder=folder) == 1
    assert ask(database, "SELECT count(*) FROM a") == [(3,)]
    assert ask(database, "SELECT name FROM schema_history ORDER BY installed_rank") == [
        ("V1_1__make.sql",),
        ("V1_2__fill.sql",),
        ("V1_10__more.sql",),
    ]


def test_migration_that_changed_or_fails_is_named(database: str, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "migrations", {"V1_1__make.sql": "CREATE TABLE a (id INT)"})
    migrate(database, folder=folder)
    write_files(folder, {"V1_2__wrong.sql": "INSERT INTO a VALUES (1); INSERT INTO nothing VALUES (1)"})
    with pytest.raises(ServiceError, match=r'V1_2__wrong\.sql FAILED: relation "nothing" does not exist') as refused:
        migrate(database, folder=folder)
    assert str(conninfo_to_dict(database)["password"]) not in str(refused.value)
    assert ask(database, "SELECT count(*) FROM a") == [(0,)]  # all of a file, or nothing
    write_files(folder, {"V1_2__wrong.sql": "SELECT 1", "V1_1__make.sql": "CREATE TABLE a (id BIGINT)"})
    with pytest.raises(ServiceError, match=r"V1_1__make\.sql"):
        migrate(database, folder=folder)


def test_ready_database_uses_the_users_own(database: str, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "migrations", {"V1_1__make.sql": "CREATE TABLE a (id INT); CREATE TABLE b (id INT)"})
    parts = conninfo_to_dict(database)
    capture = Capture("not_asked_for", tmp_path, url=database, migrations=folder)
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    messages: list[str] = []
    ready = ready_database(settings, capture, report=messages.append)
    assert messages == ["1 migration is applied to not_asked_for"]
    assert (ready.user, ready.password, ready.is_ours) == (parts["user"], parts["password"], False)
    assert not settings.home.exists()  # nothing of ours was started
    given = find_database(load_settings(flags={}, environ={"HEADRACE_DEBEZIUM_PASSWORD": "x"}, folder=tmp_path), capture)
    assert given is not None
    assert (given.user, given.password) == ("debezium", "x")

    assert publish_tables(ready, "mine", patterns=[r"public\.a"], tables=[]) == ("public.a",)
    assert publish_tables(ready, "mine", patterns=[r"public\.[ab]"], tables=[]) == ("public.a", "public.b")
    assert publish_tables(ready, "mine", patterns=[r"public\.x"], tables=["public.b"]) == ("public.b",)
    assert ask(database, "SELECT tablename FROM pg_publication_tables WHERE pubname = 'mine'") == [("b",)]
    with pytest.raises(ServiceError, match=r"no table of .* matches public\\\.x"):
        publish_tables(ready, "mine", patterns=[r"public\.x"], tables=[])
    drop_publication(ready, "mine")
    drop_publication(ready, "mine")
    assert ask(database, "SELECT pubname FROM pg_publication") == []

    slot = str(parts["dbname"])[:60]
    assert read_slot(ready, slot) is None
    ask(database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    ask(database, "INSERT INTO a SELECT generate_series(1, 1000)")
    read = read_slot(ready, slot)
    assert read is not None
    assert read.lag_bytes is not None
    assert (read.lag_bytes > 1000, read.active, read.wal_status) == (True, False, "reserved")
    assert drop_slot(ready, slot)
    assert not drop_slot(ready, slot)


def test_ready_database_reports_an_outage(database: str, tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    capture = Capture("mine", tmp_path, url="postgresql://me:hidden@127.0.0.1:1/mine")
    with pytest.raises(UnavailableError, match=r"could not connect to Postgres on me@127\.0\.0\.1:1/mine") as refused:
        ready_database(settings, capture, report=print)
    assert "hidden" not in str(refused.value)
    own = replace(settings, postgres_url=database)
    with pytest.raises(UnavailableError, match='database "not_there" does not exist'):
        ready_database(own, Capture("not_there", tmp_path), report=print)
