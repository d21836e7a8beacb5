"""All settings. The annotation of a field says how it is set, what it is for and how it is shown.

The field `kafka_port` is `kafka.port` in headrace.toml and HEADRACE_KAFKA_PORT in the environment. All fields follow this
rule, unless they set `variable`. `headrace doctor` and docs/reference/profiles.md use the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headrace.settings.addresses import LOGIN, passwords_in
from headrace.settings.setting_specs import ADDRESSES, SENSITIVE, SettingSpec, specs_of

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_READERS = ("auto", "batches", "client")
_CATALOGS = ("sql", "rest", "hive", "glue")
_LOG_LEVELS = ("debug", "info", "warning", "error")
_LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, repr=False)
class Settings:
    """The settings of a command, and the origin of each value. `folder` is the working folder of the command.

    The repr contains no secrets and no addresses, which may contain one.
    """

    profile: str
    folder: Path
    origins: Mapping[str, str]
    spark_conf_dir: Path | None

    home: Annotated[Path, SettingSpec(".headrace", "state of the embedded servers, the warehouse and the logs", kind="folder")]

    state_shared: Annotated[
        bool, SettingSpec("false", "true: other users of this machine may read the state; false: only its owner", kind="bool")
    ]
    services_secure: Annotated[
        bool,
        SettingSpec("false", "true: the embedded Kafka and registry require a password, as Connect always does", kind="bool"),
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
            "your own Kafka; empty: Headrace starts one",
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
            "",
            "CA certificates (PEM) to verify Kafka's certificate with; empty: the system's",
            kind="file",
            empty="(this system's)",
        ),
    ]
    kafka_certificate_location: Annotated[
        str, SettingSpec("", "a client certificate (PEM) for Kafka", kind="file", empty="(none)")
    ]
    kafka_key_location: Annotated[str, SettingSpec("", "the key (PEM) of that certificate", kind="file", empty="(none)")]
    kafka_reader: Annotated[
        str,
        SettingSpec(
            "auto",
            "how landing reads: batches (record batches as the broker stores them, the fastest), client (librdkafka), or auto: "
            "batches, and client if the broker's protocol is unknown",
            choices=_READERS,
        ),
    ]
    kafka_port: Annotated[int, SettingSpec("9092", "the embedded broker's port; another one if it is in use", kind="number")]

    postgres_url: Annotated[
        str | None,
        SettingSpec(
            None,
            "your own Postgres; empty: Headrace starts one",
            kind="postgres",
            password="PGPASSWORD",
            empty="(embedded)",
        ),
    ]
    postgres_port: Annotated[
        int, SettingSpec("7777", "the embedded Postgres's port; another one if it is in use", kind="number")
    ]
    connect_url: Annotated[
        str | None, SettingSpec(None, "your own Kafka Connect; empty: Headrace starts one", kind="web", empty="(embedded)")
    ]
    connect_port: Annotated[int, SettingSpec("8083", "the embedded Connect's port; another one if it is in use", kind="number")]
    registry_url: Annotated[
        str | None, SettingSpec(None, "your own schema registry; empty: Headrace starts one", kind="web", empty="(embedded)")
    ]
    registry_port: Annotated[
        int, SettingSpec("8081", "the embedded registry's port; another one if it is in use", kind="number")
    ]
    trino_port: Annotated[int, SettingSpec("8080", "the embedded Trino's port; another one if it is in use", kind="number")]

    receive_public_url: Annotated[
        str | None, SettingSpec(None, "the public URL of webhooks; empty: that of each request", empty="(from the request)")
    ]
    receive_max_body_bytes: Annotated[int, SettingSpec("1048576", "the maximum size of a webhook's body", kind="number")]

    catalog_type: Annotated[str, SettingSpec("sql", "sql (SQLite or Postgres), rest, hive or glue", choices=_CATALOGS)]
    catalog_uri: Annotated[
        str,
        SettingSpec(
            "",
            "the URI of the catalog; empty: SQLite in home",
            kind="database",
            password="HEADRACE_CATALOG_CREDENTIAL",
            empty="(none)",
        ),
    ]
    catalog_warehouse: Annotated[
        str, SettingSpec("", "the name of the warehouse in a REST catalog; empty: its location", empty="(its location)")
    ]
    catalog_scope: Annotated[str, SettingSpec("", "the OAuth2 scope for a REST catalog", empty="(none)")]
    catalog_oauth2_server_uri: Annotated[
        str, SettingSpec("", "the OAuth2 token server; empty: the REST catalog itself", kind="web", empty="(the catalog)")
    ]
    catalog_properties: Annotated[Mapping[str, str], SettingSpec(None, "any property of an Iceberg catalog", kind="handed on")]
    warehouse: Annotated[str, SettingSpec("", "the location of tables (file:// or s3://); empty: a folder in home")]
    s3_endpoint: Annotated[
        str, SettingSpec("", "the endpoint of an S3-compatible object store; empty: Amazon S3", kind="web", empty="(Amazon's)")
    ]
    s3_region: Annotated[str, SettingSpec("us-east-1", "the region of the buckets", variable="AWS_REGION")]
    s3_path_style: Annotated[
        bool, SettingSpec(None, "true: path-style access; empty: true if there is an endpoint", kind="bool")
    ]

    spark_master: Annotated[str, SettingSpec("local[*]", "where Spark runs: local[*], spark://…, k8s://…, yarn")]
    spark_driver_memory: Annotated[str, SettingSpec("1g", "heap size of Spark's driver")]
    spark_driver_host: Annotated[
        str, SettingSpec("", "this machine's address for remote executors; empty: Spark's default", empty="(Spark's default)")
    ]
    spark_executor_memory: Annotated[
        str, SettingSpec("", "heap size of an executor; empty: Spark's default", empty="(Spark's default)")
    ]
    spark_executor_cores: Annotated[
        int | None,
        SettingSpec(None, "concurrent tasks of an executor; empty: Spark's default", kind="number", empty="(Spark's default)"),
    ]
    spark_python: Annotated[str, SettingSpec("", "the path of the executors' Python; empty: this one's", empty="(this one)")]
    spark_python_archive: Annotated[
        str, SettingSpec("", "a packed environment (tar.gz) that executors unpack and use", empty="(none)")
    ]
    spark_conf: Annotated[Mapping[str, str], SettingSpec(None, "any setting of Spark", kind="handed on")]

    batch_max_records: Annotated[int, SettingSpec("2000000", "the maximum number of records in a landing batch", kind="number")]
    build_cache_mb: Annotated[
        int, SettingSpec("4096", "disk space for the cache of rows that builds look up, in home/cache/rows", kind="number")
    ]
    maintain_target_file_mb: Annotated[int, SettingSpec("128", "the target size of compacted data files", kind="number")]
    maintain_keep_days: Annotated[int, SettingSpec("7", "days to keep snapshots", kind="number")]
    maintain_grace_minutes: Annotated[int, SettingSpec("1440", "minutes to keep orphan files", kind="number")]
    maintain_every_minutes: Annotated[int, SettingSpec("10", "minutes between maintenance runs of headrace run", kind="number")]

    postgres_password: Annotated[
        str | None, SettingSpec(None, "the password of the embedded Postgres; empty: generated", kind="secret")
    ]
    debezium_password: Annotated[
        str | None, SettingSpec(None, "the password of the role that captures changes; empty: generated", kind="secret")
    ]
    catalog_credential: Annotated[
        str | None,
        SettingSpec(
            None,
            "`id:secret` of a REST catalog (OAuth2, with token refresh), or `user:password` of a database",
            kind="secret",
        ),
    ]
    catalog_token: Annotated[str | None, SettingSpec(None, "a bearer token for a REST catalog", kind="secret")]
    s3_access_key_id: Annotated[
        str | None,
        SettingSpec(
            None,
            "the access key of the object store; empty: the default AWS credentials",
            kind="secret",
            variable="AWS_ACCESS_KEY_ID",
        ),
    ]
    s3_secret_access_key: Annotated[
        str | None, SettingSpec(None, "the secret key of the object store", kind="secret", variable="AWS_SECRET_ACCESS_KEY")
    ]
    s3_session_token: Annotated[
        str | None, SettingSpec(None, "the session token of the access key", kind="secret", variable="AWS_SESSION_TOKEN")
    ]
    kafka_username: Annotated[str | None, SettingSpec(None, "the username for SASL", kind="secret")]
    kafka_password: Annotated[str | None, SettingSpec(None, "the password for SASL", kind="secret")]
    kafka_key_password: Annotated[str | None, SettingSpec(None, "the password of the client certificate's key", kind="secret")]

    def __repr__(self) -> str:
        shown = (field.name for field in fields(self) if field.name not in SECRETS and field.name not in _ADDRESSES)
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def row_cache(self) -> Path:
        """The folder of the row cache, which can be deleted at any time."""
        return self.home / "cache" / "rows"

    def without_secrets(self, text: str) -> str:
        """Return a text with all secrets of these settings redacted."""
        secrets = [getattr(self, name) for name in SECRETS]
        secrets += [part for credential in secrets if credential for part in credential.split(":", 1)]
        secrets += [password for name in _ADDRESSES for password in passwords_in(getattr(self, name) or "")]
        for secret in sorted({part for part in secrets if part and len(part) > 3}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in local mode."""
        return self.spark_master.startswith("local")

    @property
    def is_on_s3(self) -> bool:
        """Whether the warehouse is on S3."""
        return self.warehouse.startswith("s3://")

    @property
    def is_catalog_in_postgres(self) -> bool:
        return self.catalog_type == "sql" and self.catalog_uri.startswith(("postgresql:", "postgres:", "postgresql+psycopg:"))

    @property
    def catalog_login(self) -> tuple[str, str]:
        """The user and password of the catalog's database, from the credential, else from the URI."""
        if self.catalog_credential:
            user, _, password = self.catalog_credential.partition(":")
            return user, password
        parts = urlsplit(self.catalog_uri)
        parameters = dict(parse_qsl(parts.query))
        return unquote(parts.username or "") or parameters.get("user", ""), unquote(parts.password or "") or parameters.get(
            "password", ""
        )

    @property
    def catalog_address(self) -> tuple[str, str, str]:
        """Host, path and query of a catalog in Postgres, without user and password."""
        parts = urlsplit(self.catalog_uri)
        parameters = [
            parameter
            for parameter in parse_qsl(parts.query, keep_blank_values=True)
            if parameter[0] not in ("user", "password")
        ]
        return parts.netloc.rpartition("@")[2], parts.path, urlencode(parameters, quote_via=quote)

    @property
    def catalog_jdbc_uri(self) -> str:
        """The JDBC URI of a catalog in Postgres, without user and password."""
        return urlunsplit(("jdbc:postgresql", *self.catalog_address, ""))


_ALL = specs_of(Settings)

SETTING_SPECS = tuple(spec for spec in _ALL if spec.kind not in ("secret", "handed on"))
"""The settings with a name in the file and a variable in the environment."""

PASSED_ON_SECTIONS = tuple(spec for spec in _ALL if spec.kind == "handed on")
"""The sections of the file that are passed on to other programs, with any names."""

SECRETS = {spec.field: spec.environ for spec in _ALL if spec.kind == "secret"}
"""The fields of Settings that come only from the environment, with their variables."""

ADDRESS_FIELDS = {spec.environ: spec.field for spec in SETTING_SPECS if spec.kind in ADDRESSES}
"""The variables of addresses, which may contain a password, with their fields."""

_ADDRESSES = tuple(ADDRESS_FIELDS.values())

REDACTED = "|".join((SENSITIVE, LOGIN, *sorted({*SECRETS.values(), *ADDRESS_FIELDS})))
"""The pattern by which Spark redacts settings: these names, and values that contain a login."""
