"""Set up the embedded broker: its folder, properties and command line, and the errors of a failed start.

`<home>/kafka/` holds `server.properties` (written at every start; its port is the preferred one of the next start), `data/`
(the topics), `tmp/` and, if `services.secure` is set, `password`. One process is broker and controller (KRaft). It listens on
127.0.0.1 only.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServiceError
from headrace.secret_files import write_privately
from headrace.servers.failed_start import DISK_FULL, Sign, explain_failure, no_memory, port_taken
from headrace.servers.java import SERVER_OPTIONS, SIMPLE_LOG, clear_temporary
from headrace.servers.ports import HOST

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
ENOUGH_SPACE = 500 * 1000 * 1000

# A producer may start before its pipeline. Its first message then creates the topic with one partition, and the pipeline adds
# the others (ensure_topics). The reverse would not work, because Kafka can't remove partitions.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=BROKER://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=BROKER://{host}:{port}
listener.security.protocol.map=BROKER:{protocol},CONTROLLER:{protocol}
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=true
num.partitions=1
auto.leader.rebalance.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
message.max.bytes={max_message_bytes}
replica.fetch.max.bytes={max_message_bytes}
log.retention.ms=-1
log.retention.bytes=-1
log.cleaner.dedupe.buffer.size=16777216
broker.heartbeat.interval.ms=1000
broker.session.timeout.ms=4000
num.io.threads=4
"""

USER = "headrace"
_LOGIN = """\
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.broker.plain.sasl.jaas.config={jaas}
listener.name.controller.plain.sasl.jaas.config={jaas}
"""
_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}"'
    ' user_{user}="{password}";'
)

_JVM = ("-Xms64m", "-Xmx512m", *SERVER_OPTIONS, *SIMPLE_LOG)


@dataclass(frozen=True)
class Server:
    """The broker of one home, before its start: its folder, its Java and its jars."""

    folder: Path
    java: Path
    jars: tuple[Path, ...]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def command(self, main: str, *arguments: str) -> tuple[str, ...]:
        return (str(self.java), *_JVM, "-cp", os.pathsep.join(map(str, self.jars)), main, *arguments)


def write_properties(server: Server, *, port: int, controller_port: int, password: str | None = None) -> None:
    """Write `server.properties`. Its paths are relative to the folder, so that they need no escaping.

    With a password, clients and the controller must log in as `USER`.
    """
    text = PROPERTIES.format(
        host=HOST,
        port=port,
        controller_port=controller_port,
        data="data",
        max_message_bytes=MAX_MESSAGE_BYTES,
        protocol="SASL_PLAINTEXT" if password else "PLAINTEXT",
    )
    if password:
        text += _LOGIN.format(jaas=_JAAS.format(user=USER, password=password))
    write_privately(server.folder / "server.properties", text)


def last_port(folder: Path) -> int | None:
    """Return the port of the last run, or None if this is the first."""
    try:
        listener = re.search(r"^listeners=BROKER://[^:]+:(\d+)", (folder / "server.properties").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(listener.group(1)) if listener else None


def format_storage(server: Server) -> None:
    """Format `data/`. Idempotent; an interrupted call leaves no partial `data/` behind."""
    clear_temporary(server.folder)
    if server.data.exists():
        return
    fresh = server.folder / "formatting"
    shutil.rmtree(fresh, ignore_errors=True)
    properties = PROPERTIES.format(
        host=HOST,
        port=9092,
        controller_port=9093,
        data=fresh.name,
        max_message_bytes=MAX_MESSAGE_BYTES,
        protocol="PLAINTEXT",
    )
    (server.folder / "format.properties").write_text(properties, encoding="ascii")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
    done = subprocess.run(
        server.command("kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", "format.properties"),
        cwd=server.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not (fresh / "meta.properties").exists():
        signs = failure_signs(server.folder.parent)
        raise explain_failure("kafka", "Kafka", done.stdout + done.stderr, signs=signs, log=server.folder)
    os.rename(fresh, server.data)
    (server.folder / "format.properties").unlink()


def read_cluster_id(folder: Path) -> str | None:
    """Return the cluster id in the broker's storage, or None if it has none."""
    try:
        text = (folder / "data" / "meta.properties").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    cluster = re.search(r"^cluster\.id=(\S+)", text, re.MULTILINE)
    return cluster.group(1) if cluster else None


def check_space(home: Path) -> None:
    """Raise a ServiceError if the disk has too little free space for a broker."""
    free = shutil.disk_usage(home).free
    if free < ENOUGH_SPACE:
        raise ServiceError(
            f"the disk is almost full: {free / 1e6:.0f} MB are free, and Kafka requires {ENOUGH_SPACE / 1e6:.0f} MB",
            where=str(home),
            next_step="Free some space, or set HEADRACE_HOME to a folder on another disk, then run the command again.",
        )


def failure_signs(home: Path) -> tuple[Sign, ...]:
    """Return the causes of failed starts of a home's broker."""
    return (
        DISK_FULL,
        port_taken("HEADRACE_KAFKA_PORT"),
        no_memory(
            "the broker takes up to 700 MB", pattern="insufficient memory|Could not reserve enough space|OutOfMemoryError"
        ),
        Sign(
            r"(?i)meta\.?properties|metadata\.version|quorum-?state|bootstrap\.checkpoint|corrupt",
            "its storage is damaged or from another version",
            f"To start with empty topics: mv {home / 'kafka'} {home / 'kafka.broken'}   then run the command again.",
        ),
    )
