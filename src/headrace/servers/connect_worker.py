"""Set up the embedded Kafka Connect: its folder, properties and command line, and the errors of a failed start.

`<home>/connect/` holds `worker.properties` (written at every start), `plugins/` (Debezium and the converter for Avro, each
loaded apart), `secrets/` (passwords that connectors refer to, so that neither Connect's topics nor its answers have them),
`port`, and the `password` of its REST interface.
It is a distributed worker, alone in its group, because only distributed workers support exactly-once sources.

Connect expands references to config providers (`${file:…}`) in its responses, for example to `…/config/validate`. So the REST
interface requires the password, and the file provider reads `secrets/` only. If Kafka is the user's own and has a login, a
second provider reads the environment variables of that login, and no others.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.kafka.client import KEYSTORE, JavaClient
from headrace.secret_files import write_privately
from headrace.servers.failed_start import Sign, no_memory, port_taken
from headrace.servers.java import SERVER_OPTIONS, SIMPLE_LOG
from headrace.servers.kafka_server import MAX_MESSAGE_BYTES
from headrace.servers.ports import HOST

SECRETS = "secrets"
CONVERTER = "converter"
APICURIO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
TRANSACTION_TIMEOUT_MS = 10_000
"""How long a transaction of a killed worker can block consumers that read committed messages."""

PROPERTIES = """\
bootstrap.servers={servers}
group.id={name}
client.id={name}
config.storage.topic={name}-configs
offset.storage.topic={name}-offsets
status.storage.topic={name}-status
config.storage.replication.factor={replicas}
offset.storage.replication.factor={replicas}
status.storage.replication.factor={replicas}
offset.storage.partitions=1
status.storage.partitions=1
listeners=http://{host}:{port}
rest.advertised.host.name={host}
rest.advertised.port={port}
plugin.path=plugins
plugin.discovery=service_load
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
rest.extension.classes=org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension
config.providers={providers}
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.file.param.allowed.paths={secrets}
scheduled.rebalance.max.delay.ms=0
session.timeout.ms=6000
heartbeat.interval.ms=1500
rebalance.timeout.ms=15000
worker.sync.timeout.ms=3000
offset.flush.interval.ms=5000
task.shutdown.graceful.timeout.ms=5000
producer.max.request.size={max_message_bytes}
producer.compression.type=lz4
producer.transaction.timeout.ms={transaction_timeout_ms}
producer.buffer.memory=33554432
"""

_ENVIRONMENT_PROVIDER = """\
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.env.param.allowlist.pattern={variables}
"""
USER = "headrace"
_LOGIN, _USERS = "login.conf", "users.properties"
_LOGIN_CONF = f"""\
KafkaConnect {{
  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required file="{_USERS}";
}};
"""

FAILURE_SIGNS = (
    port_taken("HEADRACE_CONNECT_PORT", also="Unable to initialize REST server"),
    no_memory("Connect takes up to 800 MB"),
    Sign("Failed to connect to and describe Kafka cluster", "it can't reach Kafka", "Check that Kafka runs: headrace status"),
)
_CLIENTS = ("", "producer.", "consumer.", "admin.")


@dataclass(frozen=True)
class Worker:
    """The Connect of one home, before its start: its folder, its Java and its jars."""

    folder: Path
    java: Path
    jars: tuple[Path, ...]

    @property
    def command(self) -> tuple[str, ...]:
        log = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=warn"
        class_path = os.pathsep.join(map(str, self.jars))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        heap = ("-Xms64m", "-Xmx512m")
        login = f"-Djava.security.auth.login.config={_LOGIN}"
        return (str(self.java), *heap, *SERVER_OPTIONS, *SIMPLE_LOG, log, login, "-cp", class_path, main, "worker.properties")


def prepare(folder: Path, *, plugins: dict[str, Iterable[Path]]) -> None:
    """Prepare the folder: remove temporary files of the last run, and link the jars of the plugins.

    Connect finds plugins by their service manifests, which takes a sixth of the time of a scan. The converter lacks one, so
    this writes it.
    """
    for name in ("tmp", "plugins"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    (folder / SECRETS).mkdir(mode=0o700, exist_ok=True)
    for name, jars in plugins.items():
        (folder / "plugins" / name).mkdir()
        for jar in jars:
            (folder / "plugins" / name / jar.name).symlink_to(jar)
    if CONVERTER in plugins:
        with zipfile.ZipFile(folder / "plugins" / CONVERTER / "manifest.jar", "w") as jar_file:
            jar_file.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", f"{APICURIO_CONVERTER}\n")


def write_properties(folder: Path, *, servers: str, port: int, own_kafka: bool, client: JavaClient) -> None:
    """Write `worker.properties`. On the user's own Kafka, topics get its default replication factor.

    `client` has the login to Kafka, for the worker and for the clients of its connectors.
    """
    secured = [f"{prefix}{name}={value}" for prefix in _CLIENTS for name, value in client.properties.items()]
    text = PROPERTIES.format(
        servers=servers,
        name="headrace-connect",
        replicas=-1 if own_kafka else 1,
        host=HOST,
        port=port,
        providers="file,env" if client.environ else "file",
        secrets=str(folder / SECRETS).replace("\\", "\\\\"),
        max_message_bytes=MAX_MESSAGE_BYTES,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    if client.environ:
        text += _ENVIRONMENT_PROVIDER.format(variables="|".join(sorted(client.environ)))
    write_privately(folder / "worker.properties", "\n".join((text, *secured, "")))
    if client.keystore:
        write_privately(folder / KEYSTORE, client.keystore)


def write_login(folder: Path, *, password: str) -> None:
    """Write the user file of the REST interface, and the JAAS file that names it."""
    write_privately(folder / _USERS, f"{USER}={password}\n")
    write_privately(folder / _LOGIN, _LOGIN_CONF)


def read_servers(folder: Path) -> str | None:
    """Return the bootstrap servers that the worker was started with, or None if it was never started."""
    try:
        text = (folder / "worker.properties").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((line.partition("=")[2] for line in text.splitlines() if line.startswith("bootstrap.servers=")), None)
