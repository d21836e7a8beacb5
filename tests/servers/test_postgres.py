"""The real Postgres: it starts as any user, requires a password, restarts on its data, and leaves no orphan process."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import ServiceError, SettingsError, UnavailableError
from headrace.operations.doctor import origins_of
from headrace.servers import postgres_server
from headrace.servers.postgres import find_postgres, postgres, running_postgres, start_postgres, stop_postgres
from headrace.servers.process import GRACE
from headrace.servers.status import list_services, read_log
from headrace.servers.watchdog import as_user
from headrace.settings import Settings, load_settings
from tests.support.processes import is_gone, taken
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services

USER = """
import os, sys
from pathlib import Path
from headrace.servers.postgres import postgres, running_postgres
from headrace.settings import load_settings
settings = load_settings(flags={}, environ={}, folder=Path(sys.argv[1]))
with postgres(settings, report=lambda line: None) as dsn:
    print(running_postgres(settings).pid, os.geteuid(), dsn, flush=True)
    sys.stdin.readline()
"""


def ask(dsn: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, connect_timeout=30, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def status_of(settings: Settings) -> str:
    return next(service.state for service in list_services(settings) if service.name == "postgres")


def start_user(
    folder: Path, environ: dict[str, str], *, user: str | None = None, python: str = sys.executable
) -> subprocess.Popen[str]:
    command = [python, "-c", USER, str(folder)]
    return subprocess.Popen(
        command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, **as_user(user)
    )


def find_python(environ: dict[str, str], *, user: str) -> str:
    """Return a Python that this user can run; the tests' own may be in a folder without access for others."""
    for python in (sys.executable, shutil.which("python3", path=os.defpath) or sys.executable):
        command = [python, "-c", "import headrace.servers.postgres"]
        try:
            done = subprocess.run(command, env=environ, cwd="/", capture_output=True, check=False, **as_user(user))
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip(f"there is no Python with these packages that {user} can run")


def read_line(user: subprocess.Popen[str]) -> list[str]:
    assert user.stdout is not None
    return user.stdout.readline().split(maxsplit=2)


def test_it_is_shared_asks_for_a_password_and_ends_with_its_last_user(
    settings_for: Callable[..., Settings], said: list[str]
) -> None:
    settings = settings_for()
    with postgres(settings, report=said.append) as dsn:
        service = running_postgres(settings)
        assert service is not None
        assert find_postgres(settings) == service.dsn == dsn
        assert said[-1].startswith(f"Postgres is ready on 127.0.0.1:{service.port}")
        assert ask(dsn, "SHOW wal_level") == [("logical",)]
        assert ask(dsn, "SELECT current_user::text, current_database()::text") == [("analytics", "analytics")]
        assert ask(dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
        for wrong in ({"password": "wrong"}, {"password": ""}, {"user": "postgres"}):
            with pytest.raises(psycopg.OperationalError, match=r"password|pg_hba"):
                ask(make_conninfo(dsn, **wrong), "SELECT 1")
        listening = {
            connection.laddr.ip for connection in psutil.Process(service.pid).net_connections() if connection.status == "LISTEN"
        }
        assert listening == {"127.0.0.1"}
        password = settings.home / "postgres" / "password"
        assert stat.S_IMODE(password.stat().st_mode) == 0o600
        secret = password.read_text().strip()
        assert secret not in repr(service) + " ".join(psutil.Process(service.pid).cmdline()) + "\n".join(said)
        with postgres(settings, report=said.append) as again:
            assert again == dsn
        assert status_of(settings) == "running"
        assert any("ready to accept connections" in line for line in read_log(settings, "postgres", 500))
        assert secret not in "\n".join(read_log(settings, "postgres", 500))
        idle = psycopg.connect(dsn)  # a client that stays does not hold up the end
        began = time.monotonic()
    assert time.monotonic() - began < GRACE
    idle.close()
    assert is_gone(service.pid)
    assert running_postgres(settings) is None
    assert find_postgres(settings) is None
    assert status_of(settings) == "stopped"


def test_kill_and_restart_keep_the_data_and_the_port(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    first = start_postgres(settings, detached=True, report=said.append)
    assert first.detached
    assert start_postgres(settings, detached=True, report=said.append) == first
    ask(first.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(first.pid), what="its end")
    assert running_postgres(settings) is None
    assert status_of(settings) == "died"
    second = start_postgres(settings, detached=True, report=said.append)
    assert (second.port, second.dsn) == (first.port, first.dsn)
    assert second.pid != first.pid
    assert ask(second.dsn, "SELECT n FROM kept") == [(7,)]
    assert stop_postgres(settings)
    assert is_gone(second.pid)


def test_no_orphan_after_sigkill_and_a_second_command_keeps_it(tmp_path: Path, child_environ: dict[str, str]) -> None:
    first, second = start_user(tmp_path, child_environ), start_user(tmp_path, child_environ)
    try:
        pid = int(read_line(first)[0])
        assert int(read_line(second)[0]) == pid  # two commands that start at once share one server
        first.kill()
        first.communicate()
        time.sleep(1.0)
        assert not is_gone(pid)
        second.kill()
        second.communicate()
        wait_until(lambda: is_gone(pid), what="its end")
    finally:
        for user in (first, second):
            user.kill()
            user.communicate()
        stop_postgres(load_settings(flags={}, environ={}, folder=tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="this run is not root: every other test here shows that any user can")
def test_any_user_can_start_it_and_root_never_runs_it(
    settings_for: Callable[..., Settings], child_environ: dict[str, str]
) -> None:
    settings = settings_for()
    with postgres(settings, report=lambda line: None):
        service = running_postgres(settings)
        assert service is not None
        assert psutil.Process(service.pid).uids().effective != 0
    root = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    root.chmod(0o755)
    source = root / "src"
    shutil.copytree(Path(child_environ["PYTHONPATH"]) / "headrace", source / "headrace", ignore=shutil.ignore_patterns("*.pyc"))
    folder = root / "work"
    folder.mkdir()
    shutil.chown(folder, "nobody")
    environ = {**child_environ, "PYTHONPATH": os.pathsep.join((str(source), sysconfig.get_path("purelib")))}
    try:
        user = start_user(folder, environ, user="nobody", python=find_python(environ, user="nobody"))
        pid, uid, dsn = read_line(user)
        assert int(uid) == pwd.getpwnam("nobody").pw_uid == psutil.Process(int(pid)).uids().effective
        assert ask(dsn.strip(), "SELECT 1") == [(1,)]
        user.communicate("\n", timeout=60)
        assert is_gone(int(pid))
    finally:
        shutil.rmtree(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the programs as another user")
def test_programs_out_of_reach_are_copied_once(
    settings_for: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = postgres_server.find_programs().parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, closed / part.name, symlinks=True)
    cache = Path(tempfile.mkdtemp())
    cache.chmod(0o755)
    monkeypatch.setattr(postgres_server, "find_programs", lambda: closed / package.name / "pginstall" / "bin")
    monkeypatch.setattr(postgres_server, "SHARED_CACHE", cache)
    try:
        for _ in range(2):
            with postgres(settings_for(), report=lambda line: None) as dsn:
                assert ask(dsn, "SELECT 1") == [(1,)]
        assert len(list(cache.iterdir())) == 1
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def test_taken_port_is_avoided_unless_it_was_asked_for(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    with taken(settings.postgres_port):
        with postgres(settings, report=said.append) as dsn:
            assert conninfo_to_dict(dsn)["port"] != str(settings.postgres_port)
            assert ask(dsn, "SELECT 1") == [(1,)]
        assert any(line.startswith(f"Port {settings.postgres_port} is taken") for line in said)
        with pytest.raises(ServiceError, match=f"port {settings.postgres_port} is taken") as caught:
            start_postgres(settings_for(postgres__port=str(settings.postgres_port)), detached=False, report=said.append)
        assert caught.value.where == "postgres.port, from flag"


def test_server_that_dies_while_it_starts(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    with postgres(settings, report=said.append):
        pass
    (settings.home / "postgres" / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(ServiceError) as caught:
        start_postgres(settings, detached=False, report=said.append)
    assert "its data is damaged or from another version" in caught.value.what
    assert f"mv {settings.home / 'postgres'}" in caught.value.next_step
    assert status_of(settings) == "stopped"


def test_another_password_is_set_at_the_next_start_and_refused_before(tmp_path: Path, said: list[str]) -> None:
    def settings(password: str | None) -> Settings:
        environ = {} if password is None else {"HEADRACE_POSTGRES_PASSWORD": password}
        return load_settings(flags={}, environ=environ, folder=tmp_path)

    odd = "it's \\ odd"
    with postgres(settings(odd), report=said.append) as dsn:
        assert ask(dsn, "SELECT 1") == [(1,)]
        assert conninfo_to_dict(dsn)["password"] == odd
        with pytest.raises(SettingsError, match="started with another password"), postgres(settings("x"), report=said.append):
            pass
    with postgres(settings(None), report=said.append) as dsn:
        assert ask(dsn, "SELECT 1") == [(1,)]
    with pytest.raises(SettingsError, match="unprintable character"), postgres(settings("a\nb"), report=said.append):
        pass


def test_own_postgres_is_used_and_its_outage_is_reported_without_its_password(
    settings_for: Callable[..., Settings], tmp_path: Path, said: list[str]
) -> None:
    with postgres(settings_for(), report=said.append) as dsn:
        parts = conninfo_to_dict(dsn)
        address = f"127.0.0.1:{parts['port']}/analytics"
        own = f"postgresql://analytics:{parts['password']}@{address}"
        other = tmp_path / "other"
        other.mkdir()
        settings = load_settings(flags={}, environ={"HEADRACE_POSTGRES_URL": own}, folder=other)
        before = len(said)
        with postgres(settings, report=said.append) as mine:
            assert ask(mine, "SELECT 1") == [(1,)]
        assert said[before:] == []
        assert ask(dsn, "SELECT 1") == [(1,)]  # it was not ours to stop
        shown = {origin.name: origin.value for origin in origins_of(settings)}
        assert shown["postgres.url"] == f"analytics@{address}"
    assert str(parts["password"]) not in repr(settings)
    with pytest.raises(UnavailableError) as caught, postgres(settings, report=said.append):
        pass
    assert f"could not connect to Postgres on analytics@{address}" in caught.value.what
    assert caught.value.where == "postgres.url, from environment (HEADRACE_POSTGRES_URL)"
    assert str(parts["password"]) not in str(caught.value)


def test_password_in_the_settings_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local.postgres]\nurl = "postgresql://me:hunter2@db/analytics"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(flags={}, environ={}, folder=tmp_path)
    assert "hunter2" not in str(caught.value)
    (tmp_path / "headrace.toml").write_text('[local.postgres]\nurl = "postgresql://me@db:5432/analytics"\n')
    assert load_settings(flags={}, environ={}, folder=tmp_path).postgres_url == "postgresql://me@db:5432/analytics"
