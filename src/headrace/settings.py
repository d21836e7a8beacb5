"""Where Headrace keeps its state and which servers it talks to.

A value comes from a flag, else from the environment, else from `headrace.toml`, else from the default. Settings are read
once, at the start of a command, and passed down.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from headrace.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "headrace.toml"
POSTGRES_PASSWORD = "HEADRACE_POSTGRES_PASSWORD"
DEBEZIUM_PASSWORD = "HEADRACE_DEBEZIUM_PASSWORD"
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|\bpassword\s*=", re.IGNORECASE)
"""A connection string that has a password in it."""


@dataclass(frozen=True)
class Known:
    """One value that can be set: its name in the file, its environment variable, its default and what it is for."""

    name: str
    environ: str
    default: str
    about: str


KNOWN = (
    Known("home", "HEADRACE_HOME", ".headrace", "state of the embedded servers, the warehouse and the logs"),
    Known("kafka.bootstrap_servers", "KAFKA_BOOTSTRAP_SERVERS", "", "your own Kafka; empty: one is started for you"),
    Known("kafka.port", "HEADRACE_KAFKA_PORT", "9092", "the embedded broker's port; a free one if it is taken"),
    Known("postgres.url", "HEADRACE_POSTGRES_URL", "", "your own Postgres; empty: one is started for you"),
    Known("postgres.port", "HEADRACE_POSTGRES_PORT", "7777", "the embedded Postgres's port; a free one if it is taken"),
    Known("connect.url", "HEADRACE_CONNECT_URL", "", "your own Kafka Connect; empty: one is started for you"),
    Known("connect.port", "HEADRACE_CONNECT_PORT", "8083", "the embedded Connect's port; a free one if it is taken"),
    Known("registry.url", "HEADRACE_REGISTRY_URL", "", "your own schema registry; empty: one is started for you"),
    Known("registry.port", "HEADRACE_REGISTRY_PORT", "8081", "the embedded registry's port; a free one if it is taken"),
    Known("trino.port", "HEADRACE_TRINO_PORT", "8080", "the port of Trino, where it is asked for; a free one if it is taken"),
    Known(
        "receive.public_url", "HEADRACE_RECEIVE_PUBLIC_URL", "", "the address that senders of webhooks know; empty: as they ask"
    ),
    Known("receive.max_body_bytes", "HEADRACE_RECEIVE_MAX_BODY_BYTES", "1048576", "the longest body of a webhook"),
    Known("catalog.uri", "HEADRACE_CATALOG_URI", "", "an Iceberg SQL catalog's database; empty: SQLite in home"),
    Known("warehouse", "HEADRACE_WAREHOUSE", "", "where tables live; empty: a folder in home"),
    Known("spark.master", "HEADRACE_SPARK_MASTER", "local[*]", "where Spark runs"),
    Known("spark.driver_memory", "HEADRACE_SPARK_DRIVER_MEMORY", "1g", "heap of Spark's driver"),
    Known("batch.max_records", "HEADRACE_BATCH_MAX_RECORDS", "2000000", "records that one landing batch takes at most"),
)


@dataclass(frozen=True)
class Settings:
    """The values of one command, each with where it came from. `folder` is the one that it was typed in.

    `postgres_password` is the embedded Postgres's, where the environment sets one, and `debezium_password` its role's that
    reads the changes of databases.
    """

    profile: str
    folder: Path
    home: Path
    kafka_bootstrap_servers: str | None
    kafka_port: int
    catalog_uri: str
    warehouse: str
    spark_master: str
    spark_driver_memory: str
    batch_max_records: int
    postgres_port: int = 7777
    postgres_url: str | None = field(default=None, repr=False)
    postgres_password: str | None = field(default=None, repr=False)
    debezium_password: str | None = field(default=None, repr=False)
    connect_url: str | None = field(default=None, repr=False)
    connect_port: int = 8083
    registry_url: str | None = field(default=None, repr=False)
    registry_port: int = 8081
    trino_port: int = 8080
    receive_public_url: str | None = None
    receive_max_body_bytes: int = 1024 * 1024
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def logs(self) -> Path:
        return self.home / "logs"


def load_settings(*, flags: Mapping[str, str], environ: Mapping[str, str], folder: Path) -> Settings:
    """Gives back the settings that hold in `folder`; a name or value that can't be is a SettingsError."""
    profile, chosen_by = _choose_profile(flags=flags, environ=environ)
    from_file = _read_profile(folder / FILE, profile=profile)
    values: dict[str, str] = {}
    origins: dict[str, str] = {"profile": chosen_by}
    for known in KNOWN:
        if flags.get(known.name):
            values[known.name], origins[known.name] = flags[known.name], "flag"
        elif environ.get(known.environ):
            values[known.name], origins[known.name] = environ[known.environ], f"environment ({known.environ})"
        elif known.name in from_file:
            values[known.name], origins[known.name] = from_file[known.name], f"{FILE} [{profile}]"
        else:
            values[known.name], origins[known.name] = known.default, "default"
    for known in KNOWN:
        if known.name in from_file and known.name.endswith(".url") and _PASSWORD.search(from_file[known.name]):
            apart = "set PGPASSWORD, or " if known.name == "postgres.url" else ""
            raise SettingsError(
                f"{known.name} has a password in it, and secrets come from the environment alone",
                where=f"{FILE} [{profile}]",
                next_step=f"Take the password out and {apart}set the whole URL as {known.environ}.",
            )
    home = (folder / values["home"]).resolve()
    return Settings(
        profile=profile,
        folder=folder.resolve(),
        home=home,
        kafka_bootstrap_servers=values["kafka.bootstrap_servers"] or None,
        kafka_port=_whole_number("kafka.port", values, origins),
        catalog_uri=values["catalog.uri"] or f"sqlite:///{home / 'catalog.db'}",
        warehouse=values["warehouse"] or f"file://{home / 'warehouse'}",
        spark_master=values["spark.master"],
        spark_driver_memory=values["spark.driver_memory"],
        batch_max_records=_whole_number("batch.max_records", values, origins),
        postgres_port=_whole_number("postgres.port", values, origins),
        postgres_url=values["postgres.url"] or None,
        postgres_password=environ.get(POSTGRES_PASSWORD) or None,
        debezium_password=environ.get(DEBEZIUM_PASSWORD) or None,
        connect_url=values["connect.url"] or None,
        connect_port=_whole_number("connect.port", values, origins),
        registry_url=values["registry.url"] or None,
        registry_port=_whole_number("registry.port", values, origins),
        trino_port=_whole_number("trino.port", values, origins),
        receive_public_url=values["receive.public_url"] or None,
        receive_max_body_bytes=_whole_number("receive.max_body_bytes", values, origins),
        origins=MappingProxyType(origins),
    )


def _choose_profile(*, flags: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str]:
    if flags.get("profile"):
        return flags["profile"], "flag"
    if environ.get("HEADRACE_PROFILE"):
        return environ["HEADRACE_PROFILE"], "environment (HEADRACE_PROFILE)"
    return "local", "default"


def _read_profile(path: Path, *, profile: str) -> dict[str, str]:
    """Gives back the profile's values by their dotted names."""
    if not path.exists():
        if profile == "local":
            return {}
        raise SettingsError(
            f'profile "{profile}" needs a {FILE}, and there is none',
            where=str(path),
            next_step=f"Create {FILE} with a [{profile}] section, or leave --profile out.",
        )
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not valid TOML: {error}", where=str(path), next_step="Fix the file.") from error
    if profile not in document:
        if profile == "local":
            return {}
        raise SettingsError(
            f'there is no profile "{profile}"',
            where=str(path),
            next_step=f"Profiles are: {', '.join(sorted(document)) or 'none'}. Add [{profile}] or choose one of them.",
        )
    flat = dict(_flatten(document[profile]))
    names = {known.name for known in KNOWN}
    for name in flat:
        if name not in names:
            raise SettingsError(
                f'"{name}" in [{profile}] is not a setting',
                where=str(path),
                next_step=f"Settings are: {', '.join(sorted(names))}.",
            )
    return flat


def _flatten(section: object, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(section, dict):
        return [(prefix, str(section))]
    return [pair for key, value in section.items() for pair in _flatten(value, f"{prefix}.{key}" if prefix else str(key))]


def _whole_number(name: str, values: Mapping[str, str], origins: Mapping[str, str]) -> int:
    try:
        number = int(values[name])
    except ValueError:
        number = -1
    if number < 1:
        raise SettingsError(
            f'{name} must be a whole number above 0, not "{values[name]}"',
            where=origins[name],
            next_step=f"Set {name} to a number such as {next(k.default for k in KNOWN if k.name == name)}.",
        )
    return number
