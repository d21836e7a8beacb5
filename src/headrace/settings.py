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
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "headrace.toml"
LOCAL, STACK = "local", "stack"
"""The profiles that need no section in the file: this machine alone, and the servers of `headrace up --profile stack`."""

POSTGRES_PASSWORD = "HEADRACE_POSTGRES_PASSWORD"
DEBEZIUM_PASSWORD = "HEADRACE_DEBEZIUM_PASSWORD"
SECRETS = {
    "postgres_password": POSTGRES_PASSWORD,
    "debezium_password": DEBEZIUM_PASSWORD,
    "catalog_credential": "HEADRACE_CATALOG_CREDENTIAL",
    "catalog_token": "HEADRACE_CATALOG_TOKEN",
    "s3_access_key_id": "AWS_ACCESS_KEY_ID",
    "s3_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "s3_session_token": "AWS_SESSION_TOKEN",
    "kafka_username": "HEADRACE_KAFKA_USERNAME",
    "kafka_password": "HEADRACE_KAFKA_PASSWORD",
    "kafka_key_password": "HEADRACE_KAFKA_KEY_PASSWORD",
}
"""The fields of Settings that come from the environment alone, each with its variable."""

SENSITIVE = "(?i)secret|password|passwd|credential|token|access[._-]?key|jaas"
"""What the name of a property that holds a secret has in it, as Spark too understands it."""

_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|\bpassword\s*=", re.IGNORECASE)
"""A connection string that has a password in it."""

_HOMES = {STACK: ".headrace/stack"}
_OPEN = {"spark.conf.": "any setting of Spark's own", "catalog.properties.": "any property of an Iceberg catalog"}
"""Beginnings of names that may go on as they like: what follows is handed on."""


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
    Known("kafka.security_protocol", "HEADRACE_KAFKA_SECURITY_PROTOCOL", "", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
    Known("kafka.sasl_mechanism", "HEADRACE_KAFKA_SASL_MECHANISM", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
    Known(
        "kafka.ca_location",
        "HEADRACE_KAFKA_CA_LOCATION",
        "",
        "certificates (PEM) that Kafka's is checked against; empty: this system's",
    ),
    Known(
        "kafka.certificate_location",
        "HEADRACE_KAFKA_CERTIFICATE_LOCATION",
        "",
        "a certificate (PEM) of your own to show to Kafka",
    ),
    Known("kafka.key_location", "HEADRACE_KAFKA_KEY_LOCATION", "", "the key (PEM) of that certificate"),
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
    Known("catalog.type", "HEADRACE_CATALOG_TYPE", "sql", "sql (SQLite or Postgres), rest, hive or glue"),
    Known("catalog.uri", "HEADRACE_CATALOG_URI", "", "where the catalog is; empty: SQLite in home"),
    Known("catalog.warehouse", "HEADRACE_CATALOG_WAREHOUSE", "", "what a REST catalog calls the warehouse; empty: its address"),
    Known("catalog.scope", "HEADRACE_CATALOG_SCOPE", "", "the OAuth2 scope to ask a REST catalog for"),
    Known(
        "catalog.oauth2_server_uri",
        "HEADRACE_CATALOG_OAUTH2_SERVER_URI",
        "",
        "who gives tokens; empty: the REST catalog itself",
    ),
    Known("warehouse", "HEADRACE_WAREHOUSE", "", "where tables live (file:// or s3://); empty: a folder in home"),
    Known("s3.endpoint", "HEADRACE_S3_ENDPOINT", "", "an object store that is not Amazon's"),
    Known("s3.region", "AWS_REGION", "us-east-1", "the region of the buckets"),
    Known("s3.path_style", "HEADRACE_S3_PATH_STYLE", "", "true: the bucket is in the path; empty: so it is with an endpoint"),
    Known("spark.master", "HEADRACE_SPARK_MASTER", "local[*]", "where Spark runs: local[*], spark://…, k8s://…, yarn"),
    Known("spark.driver_memory", "HEADRACE_SPARK_DRIVER_MEMORY", "1g", "heap of Spark's driver"),
    Known(
        "spark.driver_host",
        "HEADRACE_SPARK_DRIVER_HOST",
        "",
        "this machine's address for executors elsewhere; empty: as Spark finds",
    ),
    Known("spark.executor_memory", "HEADRACE_SPARK_EXECUTOR_MEMORY", "", "heap of an executor; empty: as Spark has it"),
    Known("spark.executor_cores", "HEADRACE_SPARK_EXECUTOR_CORES", "", "tasks at once of an executor; empty: as Spark has it"),
    Known("spark.python", "HEADRACE_SPARK_PYTHON", "", "the Python of executors; empty: this one, by its path"),
    Known(
        "spark.python_archive",
        "HEADRACE_SPARK_PYTHON_ARCHIVE",
        "",
        "a packed environment (tar.gz) that executors unpack and use",
    ),
    Known("batch.max_records", "HEADRACE_BATCH_MAX_RECORDS", "2000000", "records that one landing batch takes at most"),
    Known("maintain.target_file_mb", "HEADRACE_MAINTAIN_TARGET_FILE_MB", "128", "how big compaction makes data files"),
    Known("maintain.keep_days", "HEADRACE_MAINTAIN_KEEP_DAYS", "7", "for how long snapshots are kept"),
    Known("maintain.grace_minutes", "HEADRACE_MAINTAIN_GRACE_MINUTES", "1440", "how long files stay that nothing refers to"),
    Known("maintain.every_minutes", "HEADRACE_MAINTAIN_EVERY_MINUTES", "10", "how often headrace run looks after its tables"),
)


@dataclass(frozen=True)
class Settings:
    """The values of one command, each with where it came from. `folder` is the one that it was typed in.

    Secrets, which `SECRETS` names, are not in what is printed of it. `postgres_password` is the embedded Postgres's, where the
    environment sets one, and `debezium_password` its role's that reads the changes of databases; `catalog_credential` is
    `id:secret` for a REST catalog and `user:password` for a database.
    """

    profile: str
    folder: Path
    home: Path
    kafka_bootstrap_servers: str | None
    kafka_port: int
    catalog_uri: str = field(repr=False)
    warehouse: str
    spark_master: str
    spark_driver_memory: str
    batch_max_records: int
    kafka_security_protocol: str = "PLAINTEXT"
    kafka_sasl_mechanism: str = ""
    kafka_ca_location: str = ""
    kafka_certificate_location: str = ""
    kafka_key_location: str = ""
    kafka_username: str | None = field(default=None, repr=False)
    kafka_password: str | None = field(default=None, repr=False)
    kafka_key_password: str | None = field(default=None, repr=False)
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
    maintain_target_file_mb: int = 128
    maintain_keep_days: int = 7
    maintain_grace_minutes: int = 1440
    maintain_every_minutes: int = 10
    catalog_type: str = "sql"
    catalog_warehouse: str = ""
    catalog_scope: str = ""
    catalog_oauth2_server_uri: str = ""
    catalog_properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    catalog_credential: str | None = field(default=None, repr=False)
    catalog_token: str | None = field(default=None, repr=False)
    s3_endpoint: str = ""
    s3_region: str = "us-east-1"
    s3_path_style: bool = False
    s3_access_key_id: str | None = field(default=None, repr=False)
    s3_secret_access_key: str | None = field(default=None, repr=False)
    s3_session_token: str | None = field(default=None, repr=False)
    spark_driver_host: str = ""
    spark_executor_memory: str = ""
    spark_executor_cores: int | None = None
    spark_python: str = ""
    spark_python_archive: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spark_conf_dir: Path | None = None
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    def without_secrets(self, text: str) -> str:
        """Gives back what somebody said, without any secret of these settings that may be in it."""
        secrets = [getattr(self, name) for name in SECRETS]
        secrets += [part for each in secrets if each for part in each.split(":", 1)]
        passwords = [urlsplit(url).password for url in (self.catalog_uri, self.postgres_url, self.registry_url) if url]
        secrets += [each for password in passwords if password for each in (password, unquote(password))]
        for secret in sorted({each for each in secrets if each and len(each) > 3}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one process on this machine."""
        return self.spark_master.startswith("local")

    @property
    def is_on_s3(self) -> bool:
        """Whether the warehouse is in an object store."""
        return self.warehouse.startswith("s3://")

    @property
    def is_catalog_in_postgres(self) -> bool:
        return self.catalog_type == "sql" and self.catalog_uri.startswith(("postgresql:", "postgres:", "postgresql+psycopg:"))

    @property
    def catalog_login(self) -> tuple[str, str]:
        """Who reads the catalog's database, and the password: the credential's, or else the address's."""
        if self.catalog_credential:
            user, _, password = self.catalog_credential.partition(":")
            return user, password
        parts = urlsplit(self.catalog_uri)
        return unquote(parts.username or ""), unquote(parts.password or "")

    @property
    def catalog_jdbc_uri(self) -> str:
        """The address of a catalog in Postgres as Java has it: nobody's name and no password are in it."""
        parts = urlsplit(self.catalog_uri)
        return urlunsplit(("jdbc:postgresql", parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def load_settings(*, flags: Mapping[str, str], environ: Mapping[str, str], folder: Path) -> Settings:
    """Gives back the settings that hold in `folder`; a name or value that can't be is a SettingsError."""
    profile, chosen_by = _choose_profile(flags=flags, environ=environ)
    from_file = read_profile(folder / FILE, profile=profile)
    _refuse_secrets(from_file, profile=profile)
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
    if origins["home"] == "default":
        values["home"] = _HOMES.get(profile, values["home"])
    home = (folder / values["home"]).resolve()
    uses_sasl = bool(values["kafka.bootstrap_servers"] and environ.get(SECRETS["kafka_username"]))
    settings = Settings(
        profile=profile,
        folder=folder.resolve(),
        home=home,
        kafka_bootstrap_servers=values["kafka.bootstrap_servers"] or None,
        kafka_security_protocol=values["kafka.security_protocol"].upper() or ("SASL_SSL" if uses_sasl else "PLAINTEXT"),
        kafka_sasl_mechanism=values["kafka.sasl_mechanism"].upper() or ("PLAIN" if uses_sasl else ""),
        kafka_ca_location=_path(folder, values["kafka.ca_location"]),
        kafka_certificate_location=_path(folder, values["kafka.certificate_location"]),
        kafka_key_location=_path(folder, values["kafka.key_location"]),
        kafka_port=_whole_number("kafka.port", values, origins),
        catalog_type=values["catalog.type"].lower(),
        catalog_uri=values["catalog.uri"] or (f"sqlite:///{home / 'catalog.db'}" if values["catalog.type"] == "sql" else ""),
        catalog_warehouse=values["catalog.warehouse"],
        catalog_scope=values["catalog.scope"],
        catalog_oauth2_server_uri=values["catalog.oauth2_server_uri"],
        catalog_properties=_under("catalog.properties.", from_file),
        warehouse=values["warehouse"] or f"file://{home / 'warehouse'}",
        s3_endpoint=values["s3.endpoint"],
        s3_region=values["s3.region"],
        s3_path_style=_yes_or_no("s3.path_style", values, origins, default=bool(values["s3.endpoint"])),
        spark_master=values["spark.master"],
        spark_driver_memory=values["spark.driver_memory"],
        spark_driver_host=values["spark.driver_host"],
        spark_executor_memory=values["spark.executor_memory"],
        spark_executor_cores=_whole_number("spark.executor_cores", values, origins) if values["spark.executor_cores"] else None,
        spark_python=values["spark.python"],
        spark_python_archive=values["spark.python_archive"],
        spark_conf=_under("spark.conf.", from_file),
        spark_conf_dir=None,
        batch_max_records=_whole_number("batch.max_records", values, origins),
        postgres_port=_whole_number("postgres.port", values, origins),
        postgres_url=values["postgres.url"] or None,
        connect_url=values["connect.url"] or None,
        connect_port=_whole_number("connect.port", values, origins),
        registry_url=values["registry.url"] or None,
        registry_port=_whole_number("registry.port", values, origins),
        trino_port=_whole_number("trino.port", values, origins),
        receive_public_url=values["receive.public_url"] or None,
        receive_max_body_bytes=_whole_number("receive.max_body_bytes", values, origins),
        maintain_target_file_mb=_whole_number("maintain.target_file_mb", values, origins),
        maintain_keep_days=_whole_number("maintain.keep_days", values, origins),
        maintain_grace_minutes=_whole_number("maintain.grace_minutes", values, origins),
        maintain_every_minutes=_whole_number("maintain.every_minutes", values, origins),
        origins=MappingProxyType(origins),
        **{name: environ.get(variable) or None for name, variable in SECRETS.items()},
    )
    _check(settings)
    return settings


def _choose_profile(*, flags: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str]:
    if flags.get("profile"):
        return flags["profile"], "flag"
    if environ.get("HEADRACE_PROFILE"):
        return environ["HEADRACE_PROFILE"], "environment (HEADRACE_PROFILE)"
    return LOCAL, "default"


def read_profile(path: Path, *, profile: str) -> dict[str, str]:
    """Gives back the profile's values by their dotted names."""
    if not path.exists():
        if profile in (LOCAL, STACK):
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
        if profile in (LOCAL, STACK):
            return {}
        raise SettingsError(
            f'there is no profile "{profile}"',
            where=str(path),
            next_step=f"Profiles are: {', '.join(sorted(document)) or 'none'}. Add [{profile}] or choose one of them.",
        )
    flat = dict(_flatten(document[profile]))
    names = {known.name for known in KNOWN}
    for name in flat:
        if name not in names and not name.startswith(tuple(_OPEN)):
            raise SettingsError(
                f'"{name}" in [{profile}] is not a setting',
                where=str(path),
                next_step=f"Settings are: {', '.join(sorted(names | {f'{each}…' for each in _OPEN}))}.",
            )
    return flat


def _flatten(section: object, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(section, dict):
        return [(prefix, str(section).lower() if isinstance(section, bool) else str(section))]
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


def _yes_or_no(name: str, values: Mapping[str, str], origins: Mapping[str, str], *, default: bool) -> bool:
    found = {"": default, "true": True, "false": False}.get(values[name].lower())
    if found is None:
        raise SettingsError(
            f'{name} must be true or false, not "{values[name]}"', where=origins[name], next_step=f"Set {name} to one of them."
        )
    return found


def _under(prefix: str, from_file: Mapping[str, str]) -> Mapping[str, str]:
    """Gives back what is handed on: the names after the prefix, and their values."""
    return MappingProxyType({name.removeprefix(prefix): value for name, value in from_file.items() if name.startswith(prefix)})


def _path(folder: Path, written: str) -> str:
    return str((folder / Path(written).expanduser()).resolve()) if written else ""


def _refuse_secrets(from_file: Mapping[str, str], *, profile: str) -> None:
    """Raises a SettingsError where the file holds a password: it is committed, copied and shown."""
    by_name = {known.name: known for known in KNOWN}
    for name, value in from_file.items():
        handed_on = name.startswith(tuple(_OPEN))
        if _PASSWORD.search(value) or (handed_on and re.search(SENSITIVE, name)):
            apart = "set PGPASSWORD, or " if name == "postgres.url" else ""
            apart = f"set {SECRETS['catalog_credential']}, or " if name == "catalog.uri" else apart
            step = f"Take the password out and {apart}set the whole URL as {{}}."
            raise SettingsError(
                f"{name} has a password in it, and secrets come from the environment alone",
                where=f"{FILE} [{profile}]",
                next_step=f"Take it out. Secrets are: {', '.join(sorted(SECRETS.values()))}."
                if handed_on
                else step.format(by_name[name].environ),
            )


def _check(settings: Settings) -> None:
    """Raises a SettingsError where values don't fit together."""
    kinds = {"sql": "a database", "rest": "http(s)://…", "hive": "thrift://host:9083", "glue": ""}
    origins = settings.origins
    if settings.catalog_type not in kinds:
        raise SettingsError(
            f'catalog.type can\'t be "{settings.catalog_type}"',
            where=origins["catalog.type"],
            next_step=f"It is one of: {', '.join(kinds)}.",
        )
    if settings.catalog_type in ("rest", "hive") and not settings.catalog_uri:
        raise SettingsError(
            f"a {settings.catalog_type} catalog needs catalog.uri",
            where=origins["catalog.type"],
            next_step=f"Set it to {kinds[settings.catalog_type]}",
        )
    if settings.catalog_type == "sql" and settings.catalog_uri.startswith(("http:", "https:", "thrift:")):
        raise SettingsError(
            "a SQL catalog's uri is that of a database",
            where=origins["catalog.uri"],
            next_step="Set catalog.type to rest (http://…) or hive (thrift://…), or catalog.uri to postgresql://host/database.",
        )
    scheme = settings.warehouse.partition("://")[0] if "://" in settings.warehouse else "file"
    if scheme not in ("file", "s3"):
        raise SettingsError(
            f"a warehouse can't be on {scheme}://",
            where=origins["warehouse"],
            next_step="Set warehouse to s3://bucket/folder, or to file:///folder.",
        )
    _check_kafka(settings)


def _check_kafka(settings: Settings) -> None:
    choices = {
        "kafka.security_protocol": (settings.kafka_security_protocol, ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "kafka.sasl_mechanism": (settings.kafka_sasl_mechanism, ("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise SettingsError(
                f'{name} can\'t be "{value}"',
                where=settings.origins[name],
                next_step=f"It is one of: {', '.join(each for each in known if each)}.",
            )
    if settings.kafka_security_protocol.startswith("SASL") and not (settings.kafka_username and settings.kafka_password):
        raise SettingsError(
            f"Kafka with {settings.kafka_security_protocol} needs a name and a password",
            where=settings.origins["kafka.security_protocol"],
            next_step=f"Set {SECRETS['kafka_username']} and {SECRETS['kafka_password']} in the environment.",
        )
    if settings.kafka_security_protocol != "PLAINTEXT" and not settings.kafka_bootstrap_servers:
        raise SettingsError(
            "the Kafka that Headrace starts has neither TLS nor passwords",
            where=settings.origins["kafka.security_protocol"],
            next_step="Set kafka.bootstrap_servers to your own, or take the security settings away.",
        )
