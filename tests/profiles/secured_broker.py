"""A real broker that lets nobody in without TLS, a certificate, a name and a password; and one door without TLS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headrace.servers import kafka_server, ports
from headrace.servers.jars import resolve_jars
from headrace.servers.java import choose_java
from tests.support.waiting import wait_until

USER, PASSWORD = "streams", 'k4fka-pass"word'
KEY_PASSWORD = "k3y-password"

_SECURITY = """
listeners=BROKER://{host}:{port},CONTROLLER://{host}:{controller},SECURED://{host}:{secured},PLAIN://{host}:{plain}
advertised.listeners=BROKER://{host}:{port},SECURED://{host}:{secured},PLAIN://{host}:{plain}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,PLAIN:SASL_PLAINTEXT
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location=server.pem
listener.name.secured.ssl.truststore.type=PEM
listener.name.secured.ssl.truststore.location=ca.pem
listener.name.secured.ssl.client.auth=required
listener.name.plain.sasl.enabled.mechanisms=PLAIN
listener.name.plain.plain.sasl.jaas.config={module} required user_{user}="{password}";
"""


@dataclass(frozen=True)
class SecuredBroker:
    """`secured` wants all of it (SASL_SSL with SCRAM, and a certificate), `plain` a name and a password, `open` nothing."""

    folder: Path
    secured: str
    plain: str
    open: str

    @property
    def environ(self) -> dict[str, str]:
        """The settings of one who may come in by the secured door."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.secured,
            "HEADRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "HEADRACE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "HEADRACE_KAFKA_CA_LOCATION": str(self.folder / "ca.pem"),
            "HEADRACE_KAFKA_CERTIFICATE_LOCATION": str(self.folder / "client.crt"),
            "HEADRACE_KAFKA_KEY_LOCATION": str(self.folder / "client.key"),
            "HEADRACE_KAFKA_USERNAME": USER,
            "HEADRACE_KAFKA_PASSWORD": PASSWORD,
            "HEADRACE_KAFKA_KEY_PASSWORD": KEY_PASSWORD,
        }


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Yield a broker that runs while the block does."""
    _make_certificates(folder)
    server = kafka_server.Server(
        folder=folder,
        java=choose_java(os.environ).program,
        jars=resolve_jars("kafka", report=lambda sentence: None),
    )
    kafka_server.format_storage(server)
    port, controller, secured, plain = (ports.find_free_port() for _ in range(4))
    kafka_server.write_properties(server, port=port, controller_port=controller)
    lines = [
        line
        for line in (folder / "server.properties").read_text(encoding="ascii").splitlines()
        if not line.startswith(("listeners=", "advertised.listeners=", "listener.security.protocol.map="))
    ]
    added = _SECURITY.format(
        host=ports.HOST,
        port=port,
        controller=controller,
        secured=secured,
        plain=plain,
        module="org.apache.kafka.common.security.plain.PlainLoginModule",
        user=USER,
        password=PASSWORD.replace('"', '\\\\"'),
    )
    (folder / "server.properties").write_text("\n".join(lines) + added, encoding="ascii")
    with (folder / "broker.log").open("wb") as log:
        running = subprocess.Popen(server.command("kafka.Kafka", "server.properties"), cwd=folder, stdout=log, stderr=log)
    try:
        broker = SecuredBroker(folder, *(f"{ports.HOST}:{listener_port}" for listener_port in (secured, plain, port)))
        wait_until(lambda: not ports.is_free(port) and not ports.is_free(secured), what="the secured broker", seconds=60)
        admin = AdminClient({"bootstrap.servers": broker.open, "log_level": 0})
        wait_until(lambda: bool(admin.list_topics(timeout=5).brokers), what="the secured broker's answer", seconds=60)
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, kind, PASSWORD.encode())]).values():
            done.result(20)
        yield broker
    finally:
        running.terminate()
        running.wait(30)


def _make_certificates(folder: Path) -> None:
    """Make `ca.pem`, the broker's `server.pem` (key and certificate), and a client's `client.crt` and `client.key`."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj")
    openssl("req", "-x509", *new, "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text(f"subjectAltName=IP:{ports.HOST}", encoding="ascii")
    for name in ("server", "client"):
        openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.plain", "-out", f"{name}.csr"
        )
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")
    encrypt = ("pkcs8", "-topk8", "-in", "client.plain", "-passout", f"pass:{KEY_PASSWORD}", "-out", "client.key")
    openssl(*encrypt)
    openssl("pkcs8", "-topk8", "-nocrypt", "-in", "server.plain", "-out", "server.key")
    pem = "".join((folder / name).read_text(encoding="ascii") for name in ("server.key", "server.crt"))
    (folder / "server.pem").write_text(pem, encoding="ascii")
    (folder / "client.plain").unlink()
