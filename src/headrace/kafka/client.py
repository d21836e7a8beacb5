"""Connection and security settings of every Kafka client.

librdkafka clients take `client()`. Landing tasks have a client of their own and may run on another machine: they take
`task_config()`, which has the same names with the certificates' content instead of their paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import SettingsError
from headrace.settings import Settings

_FILES = {"ssl.ca.location": "ssl.ca.pem", "ssl.certificate.location": "ssl.certificate.pem", "ssl.key.location": "ssl.key.pem"}
READER = "headrace.reader"
"""The name in `task_config()` that says which reader landing tasks use."""
AUTO, BATCHES, CLIENT = "auto", "batches", "client"
KEYSTORE = "keystore.pem"
"""The file with a client's own certificate and key, in the folder of a Java server."""
_LOGIN, _KEY = "HEADRACE_KAFKA_JAAS", "HEADRACE_KAFKA_KEY_PASSWORD"
_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class KafkaServers:
    """The bootstrap servers of a Kafka cluster. `security` are librdkafka's settings; repr() hides their passwords.

    `reader` is the setting `kafka.reader`.
    """

    bootstrap: str
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    reader: str = AUTO

    def __str__(self) -> str:
        return self.bootstrap

    def client(self, **more: str | int | float | bool) -> dict[str, str | int | float | bool]:
        """Return the configuration of a librdkafka client. Names in `more` have underscores instead of dots."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **dict(self.security), **named}

    def task_config(self) -> dict[str, str]:
        """Return the configuration of a landing task's client, with the content of certificate files."""
        inlined = {_FILES.get(name, name): _read(name, value) if name in _FILES else value for name, value in self.security}
        return {"bootstrap.servers": self.bootstrap, READER: self.reader, **inlined}


def own_servers(settings: Settings) -> KafkaServers | None:
    """Return the user's own Kafka, or None if Headrace starts one."""
    if not settings.kafka_bootstrap_servers:
        return None
    is_sasl = settings.kafka_security_protocol.startswith("SASL")
    security = {
        "security.protocol": settings.kafka_security_protocol if settings.kafka_security_protocol != "PLAINTEXT" else "",
        "sasl.mechanism": settings.kafka_sasl_mechanism or "PLAIN" if is_sasl else "",
        "sasl.username": settings.kafka_username if is_sasl else "",
        "sasl.password": settings.kafka_password if is_sasl else "",
    }
    if settings.kafka_security_protocol.endswith("SSL"):
        security |= {
            "ssl.ca.location": settings.kafka_ca_location,
            "ssl.certificate.location": settings.kafka_certificate_location,
            "ssl.key.location": settings.kafka_key_location,
            "ssl.key.password": settings.kafka_key_password,
        }
    return KafkaServers(
        settings.kafka_bootstrap_servers,
        tuple(sorted((name, value) for name, value in security.items() if value)),
        settings.kafka_reader,
    )


def with_login(bootstrap: str, *, user: str, password: str) -> KafkaServers:
    """Return an embedded Kafka that requires a password. It listens on loopback only, so it needs no TLS."""
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }
    return KafkaServers(bootstrap, tuple(sorted(login.items())))


@dataclass(frozen=True)
class JavaClient:
    """The settings of a Java client: `properties` for its file, `environ` with the secrets that they refer to, and the content
    of `KEYSTORE` if it has a certificate of its own."""

    properties: dict[str, str]
    environ: dict[str, str] = field(repr=False)
    keystore: str = field(default="", repr=False)


def java_client(servers: KafkaServers) -> JavaClient:
    """Return the settings of a Java client for a Kafka cluster; empty if the cluster has no security."""
    security = dict(servers.security)
    properties = {"security.protocol": security.get("security.protocol", "")}
    environ = {}
    keystore = ""
    if "sasl.mechanism" in security:
        login = f"username={_quoted(security['sasl.username'])} password={_quoted(security['sasl.password'])}"
        environ[_LOGIN] = f"{_JAAS[security['sasl.mechanism']]} required {login};"
        properties |= {"sasl.mechanism": security["sasl.mechanism"], "sasl.jaas.config": f"${{env:{_LOGIN}}}"}
    if "ssl.ca.location" in security:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security["ssl.ca.location"]}
    if "ssl.certificate.location" in security and "ssl.key.location" in security:
        keystore = "\n".join(_read(name, security[name]) for name in ("ssl.key.location", "ssl.certificate.location"))
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": KEYSTORE}
    if "ssl.key.password" in security:
        environ[_KEY] = security["ssl.key.password"]
        properties["ssl.key.password"] = f"${{env:{_KEY}}}"
    return JavaClient({name: value for name, value in properties.items() if value}, environ, keystore)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"can't read the file of kafka.{name.removeprefix('ssl.').replace('.', '_')}: {error}",
            where=path,
            next_step="Set it to the path of a readable PEM file with certificates or a key.",
        ) from error
