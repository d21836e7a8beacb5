"""Every setting, listed once: a field's annotation says how it is set, what it is for and how it is shown.

`kafka_port` is `kafka.port` in headrace.toml and HEADRACE_KAFKA_PORT in the environment, and so with the others, unless
`variable` says otherwise. The order is that of `headrace doctor` and of docs/reference/profiles.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headrace.settings.addresses import LOGIN, passwords_in
from headrace.settings.setting_specs import ADDRESSES, SENSITIVE, SettingSpec, known_of

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CATALOGS = ("sql", "rest", "hive", "glue")
_LOG_LEVELS = ("debug", "info", "warning", "error")
_LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, repr=False)
class Settings:
    """The values of one command, each with where it came from. `folder` is the one that it was typed in.

    Secrets, and addresses that may have one in them, are not in what is printed of it.
    """

    profile: str
    folder: Path
    origins: Mapping[str, str]
    spark_conf_dir: Path | None

    home: Annotated[Path, SettingSpec(".headrace", "state of the embedded servers, the warehouse and the logs", kind="folder")]

    state_shared: Annotated[
        bool, SettingSpec("false", "true: other users of this machine may read the state; false: its owner alone", kind="bool")
    ]
    services_secure: Annotated[
        bool,
        SettingSpec("false", "true: the embedded Kafka and registry ask for a password, as Connect always does", kind="bool"),
    ]

    log_level: Annotated[
        str,
        SettingSpec(
            "", "log to stderr from this level on: debug, info, warning or error", choices=_LOG_LEVELS, empty="(to a file)"
        ),
    ]
    log_format: Annotated[
        str, SettingSpec("", "log to stderr in this form: text or json", choices=_LOG_FORMATS, empty="(to a file)")
    ]

    kafka_bootstrap_servers: Annotated[
        str | None,
        SettingSpec(
            None,
            "your own Kafka; empty: one is started for you",
            variable="KAFKA_BOOTSTRAP_SERVERS",
            empty="(embedded)",
        ),
    ]
    kafka_security_protocol: Annotated[str, SettingSpec("", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", choices=_PROTOCOLS)]
    kafka_sasl_mechanism: Annotated[
        str, SettingSpec("", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", choices=_MECHANISMS, empty="(none)")
    ]
    kafka_ca_location: Annotated[
        str,
        SettingSpec(
            "", "certificates (PEM) that Kafka's is checked against; empty: this system's", kind="file", empty="(this system's)"
        ),
    ]
    kafka_certificate_location: Annotated[
        str, SettingSpec("", "a certificate (PEM) of your own to show to Kafka", kind="file", empty="(none)")
    ]
    kafka_key_location: Annotated[str, SettingSpec("", "the key (PEM) of that certificate", kind="file", empty="(none)")]
    kafka_port: Annotated[int, SettingSpec("9092", "the embedded broker's port; a free one if it is taken", kind="number")]

    postgres_url: Annotated[
        str | None,
        SettingSpec(
            None,
            "your own Postgres; empty: one is started for you",
            kind="postgres",
            password="PGPASSWORD",
            empty="(embedded)",
        ),
    ]
    postgres_port: Annotated[int, SettingSpec("7777", "the embedded Postgres's port; a free one if it is taken", kind="number")]
    connect_url: Annotated[
        str | None, SettingSpec(None, "your own Kafka Connect; empty: one is started for you", kind="web", empty="(embedded)")
    ]
    connect_port: Annotated[int, SettingSpec("8083", "the embedded Connect's port; a free one if it is taken", kind="number")]
    registry_url: Annotated[
        str | None, SettingSpec(None, "your own schema registry; empty: one is started for you", kind="web", empty="(embedded)")
    ]
    registry_port: Annotated[int, SettingSpec("8081", "the embedded registry's port; a free one if it is taken", kind="number")]
    trino_port: Annotated[
        int, SettingSpec("8080", "the port of Trino, where it is asked for; a free one if it is taken", kind="number")
    ]

    receive_public_url: Annotated[
        str | None, SettingSpec(None, "the address that senders of webhooks know; empty: as they ask", empty="(as senders ask)")
    ]
    receive_max_body_bytes: Annotated[int, SettingSpec("1048576", "the longest body of a webhook", kind="number")]

    catalog_type: Annotated[str, SettingSpec("sql", "sql (SQLite or Postgres), rest, hive or glue", choices=_CATALOGS)]
    catalog_uri: Annotated[
        str,
        SettingSpec(
            "",
            "where the catalog is; empty: SQLite in home",
            kind="database",
            password="HEADRACE_CATALOG_CREDENTIAL",
            empty="(none)",
        ),
    ]
    catalog_warehouse: Annotated[
        str, SettingSpec("", "what a REST catalog calls the warehouse; empty: its address", empty="(as warehouse)")
    ]
    catalog_scope: Annotated[str, SettingSpec("", "the OAuth2 scope to ask a REST catalog for", empty="(none)")]
    catalog_oauth2_server_uri: Annotated[
        str, SettingSpec("", "who gives tokens; empty: the REST catalog itself", kind="web", empty="(the catalog)")
    ]
    catalog_properties: Annotated[Mapping[str, str], SettingSpec(None, "any property of an Iceberg catalog", kind="handed on")]
    warehouse: Annotated[str, SettingSpec("", "where tables live (file:// or s3://); empty: a folder in home")]
    s3_endpoint: Annotated[str, SettingSpec("", "an object store that is not Amazon's", kind="web", empty="(Amazon's)")]
    s3_region: Annotated[str, SettingSpec("us-east-1", "the region of the buckets", variable="AWS_REGION")]
    s3_path_style: Annotated[
        bool, SettingSpec(None, "true: the bucket is in the path; empty: so it is with an endpoint", kind="bool")
    ]

    spark_master: Annotated[str, SettingSpec("local[*]", "where Spark runs: local[*], spark://…, k8s://…, yarn")]
    spark_driver_memory: Annotated[str, SettingSpec("1g", "heap of Spark's driver")]
    spark_driver_host: Annotated[
        str, SettingSpec("", "this machine's address for executors elsewhere; empty: as Spark finds", empty="(as Spark finds)")
    ]
    spark_executor_memory: Annotated[
        str, SettingSpec("", "heap of an executor; empty: as Spark has it", empty="(as Spark has it)")
    ]
    spark_executor_cores: Annotated[
        int | None,
        SettingSpec(None, "tasks at once of an executor; empty: as Spark has it", kind="number", empty="(as Spark has it)"),
    ]
    spark_python: Annotated[str, SettingSpec("", "the Python of executors; empty: this one, by its path", empty="(this one)")]
    spark_python_archive: Annotated[
        str, SettingSpec("", "a packed environment (tar.gz) that executors unpack and use", empty="(none)")
    ]
    spark_conf: Annotated[Mapping[str, str], SettingSpec(None, "any setting of Spark's own", kind="handed on")]

    batch_max_records: Annotated[int, SettingSpec("2000000", "records that one landing batch takes at most", kind="number")]
    build_cache_mb: Annotated[
        int, SettingSpec("4096", "disk for rows of data files that builds look up, in home/cache/rows", kind="number")
    ]
    maintain_target_file_mb: Annotated[int, SettingSpec("128", "how big compaction makes data files", kind="number")]
    maintain_keep_days: Annotated[int, SettingSpec("7", "for how long snapshots are kept", kind="number")]
    maintain_grace_minutes: Annotated[int, SettingSpec("1440", "how long files stay that nothing refers to", kind="number")]
    maintain_every_minutes: Annotated[int, SettingSpec("10", "how often headrace run looks after its tables", kind="number")]

    postgres_password: Annotated[str | None, SettingSpec(None, "the embedded Postgres; else one is made up", kind="secret")]
    debezium_password: Annotated[
        str | None, SettingSpec(None, "the role that reads a database's changes; else one is made up", kind="secret")
    ]
    catalog_credential: Annotated[
        str | None,
        SettingSpec(
            None,
            "`id:secret` of a REST catalog (OAuth2; a new token is asked for when one ends), `user:password` of a database",
            kind="secret",
        ),
    ]
    catalog_token: Annotated[str | None, SettingSpec(None, "a token that a REST catalog takes as it is", kind="secret")]
    s3_access_key_id: Annotated[
        str | None,
        SettingSpec(
            None,
            "the key of the object store; without it, what Amazon's own tools find",
            kind="secret",
            variable="AWS_ACCESS_KEY_ID",
        ),
    ]
    s3_secret_access_key: Annotated[
        str | None, SettingSpec(None, "the secret of that key", kind="secret", variable="AWS_SECRET_ACCESS_KEY")
    ]
    s3_session_token: Annotated[
        str | None, SettingSpec(None, "the token of a session with that key", kind="secret", variable="AWS_SESSION_TOKEN")
    ]
    kafka_username: Annotated[str | None, SettingSpec(None, "the name for SASL", kind="secret")]
    kafka_password: Annotated[str | None, SettingSpec(None, "the password for SASL", kind="secret")]
    kafka_key_password: Annotated[str | None, SettingSpec(None, "the key of your own certificate", kind="secret")]

    def __repr__(self) -> str:
        shown = (each.name for each in fields(self) if each.name not in SECRETS and each.name not in _ADDRESSES)
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def row_cache(self) -> Path:
        """Where rows of data files are cached; deleting it costs time, not data."""
        return self.home / "cache" / "rows"

    def without_secrets(self, text: str) -> str:
        """Return what somebody said, without any secret of these settings that may be in it."""
        secrets = [getattr(self, name) for name in SECRETS]
        secrets += [part for each in secrets if each for part in each.split(":", 1)]
        secrets += [each for name in _ADDRESSES for each in passwords_in(getattr(self, name) or "")]
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
        said = dict(parse_qsl(parts.query))
        return unquote(parts.username or "") or said.get("user", ""), unquote(parts.password or "") or said.get("password", "")

    @property
    def catalog_address(self) -> tuple[str, str, str]:
        """Host, path and query of a catalog in Postgres: nobody's name and no password are in them."""
        parts = urlsplit(self.catalog_uri)
        kept = [each for each in parse_qsl(parts.query, keep_blank_values=True) if each[0] not in ("user", "password")]
        return parts.netloc.rpartition("@")[2], parts.path, urlencode(kept, quote_via=quote)

    @property
    def catalog_jdbc_uri(self) -> str:
        """The address of a catalog in Postgres as Java has it, without a login."""
        return urlunsplit(("jdbc:postgresql", *self.catalog_address, ""))


_ALL = known_of(Settings)

KNOWN = tuple(each for each in _ALL if each.kind not in ("secret", "handed on"))
"""What has a name in the file and a variable in the environment."""

HANDED_ON = tuple(each for each in _ALL if each.kind == "handed on")
"""Sections of the file whose names may be any: what is in them is handed on."""

SECRETS = {each.field: each.environ for each in _ALL if each.kind == "secret"}
"""The fields of Settings that come from the environment alone, each with its variable."""

ADDRESSED = {each.environ: each.field for each in KNOWN if each.kind in ADDRESSES}
"""The variables that may have a password in their address, each with its field."""

_ADDRESSES = tuple(ADDRESSED.values())

REDACTED = "|".join((SENSITIVE, LOGIN, *sorted({*SECRETS.values(), *ADDRESSED})))
"""What Spark hides wherever it shows its settings: under these names, and values with a login in them."""
