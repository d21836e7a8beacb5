"""The set-up of Connect and the registry without starting them: folders, properties and errors of a failed start."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import psutil
import pytest

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import ask, without_secrets
from headrace.kafka.client import JavaClient
from headrace.operations.doctor import examine, origins_of
from headrace.servers import connect_worker, process
from headrace.servers.archives import unpack
from headrace.servers.connect import connect, find_connect, start_connect
from headrace.servers.failed_start import explain_failure
from headrace.servers.registry import find_registry, registry
from headrace.settings import load_settings


def test_worker_of_an_earlier_version_without_a_password_is_refused(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, folder=tmp_path)
    started = psutil.Process().create_time()
    process.write_state(
        settings.home, process.ServiceState("connect", os.getpid(), started, 1, "connect.log", "", None, ready=True)
    )
    with pytest.raises(ServiceError, match="runs without a password") as raised:
        start_connect(settings, detached=True, report=lambda line: None)
    assert "headrace down" in raised.value.next_step


def test_properties_and_plugins(tmp_path: Path) -> None:
    jar = tmp_path / "some.jar"
    jar.touch()
    folder = tmp_path / "connect"
    for _ in range(2):  # a second start finds what the first one left
        connect_worker.prepare(folder, plugins={"debezium": [jar], connect_worker.CONVERTER: [jar]})
    connect_worker.write_properties(folder, servers="127.0.0.1:1", port=2, own_kafka=False, client=JavaClient({}, {}))
    text = (folder / "worker.properties").read_text(encoding="utf-8")
    assert "listeners=http://127.0.0.1:2\n" in text
    assert "exactly.once.source.support=enabled\n" in text
    assert "offset.storage.replication.factor=1\n" in text
    assert connect_worker.read_servers(folder) == "127.0.0.1:1"
    assert (folder / "plugins/debezium/some.jar").resolve() == jar
    with zipfile.ZipFile(folder / "plugins/converter/manifest.jar") as manifest:
        (name,) = manifest.namelist()
        assert manifest.read(name).decode().strip() == connect_worker.APICURIO_CONVERTER
    assert (folder / "secrets").stat().st_mode & 0o077 == 0
    connect_worker.write_properties(folder, servers="kafka.example:9092", port=2, own_kafka=True, client=JavaClient({}, {}))
    assert "replication.factor=-1\n" in (folder / "worker.properties").read_text(encoding="utf-8")
    assert connect_worker.read_servers(tmp_path) is None


@pytest.mark.parametrize(
    ("log", "what", "step"),
    [
        (
            "ERROR Failed\nCaused by: java.net.BindException: Address already in use",
            "its port is taken",
            "HEADRACE_CONNECT_PORT",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "not enough memory", "End other programs"),
        ("ConnectException: Failed to connect to and describe Kafka cluster", "it can't reach Kafka", "headrace status"),
        ("ERROR something else", "it ended during its start (ERROR something else)", "headrace logs connect"),
    ],
)
def test_failures_are_explained(tmp_path: Path, log: str, what: str, step: str) -> None:
    signs = connect_worker.FAILURE_SIGNS
    error = explain_failure("connect", "Connect", log, signs=signs, log=tmp_path / "connect.log")
    assert what in error.what
    assert step in error.next_step


def test_archive_is_unpacked_once_and_whole(tmp_path: Path) -> None:
    archive = tmp_path / "thing-1.0-all.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        member = tarfile.TarInfo("lib/a.jar")
        member.size = 3
        file.addfile(member, io.BytesIO(b"jar"))
    folder = unpack(archive, cache=tmp_path / "cache")
    assert (folder / "lib/a.jar").read_bytes() == b"jar"
    before = (folder / "lib/a.jar").stat()
    assert unpack(archive, cache=tmp_path / "cache") == folder
    assert (folder / "lib/a.jar").stat() == before, "it is unpacked once"
    broken = tmp_path / "other-1.0.tar.gz"
    broken.write_bytes(b"no archive")
    with pytest.raises((ServiceError, tarfile.TarError)):
        unpack(broken, cache=tmp_path / "cache")
    unpacked = (tmp_path / "cache" / "unpacked").iterdir()
    assert [path.name for path in unpacked if not path.name.startswith(".")] == ["thing-1.0-all"]


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
@pytest.mark.parametrize("change", ["content", "added", "removed", "linked"])
def test_tampered_server_is_refused(tmp_path: Path, ending: str, change: str) -> None:
    source = tmp_path / "source" / "lib"
    source.mkdir(parents=True)
    (source / "a.jar").write_bytes(b"jar")
    (source / "b.txt").write_bytes(b"text")
    archive = Path(shutil.make_archive(str(tmp_path / "thing-1.0"), {".zip": "zip"}.get(ending, "gztar"), source.parent))
    folder = unpack(archive, cache=tmp_path / "cache")
    assert unpack(archive, cache=tmp_path / "cache") == folder
    jar = folder / "lib" / "a.jar"
    before = jar.stat()
    if change == "content":
        jar.write_bytes(b"raj")
        os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "added":
        (folder / "lib" / "evil.jar").write_bytes(b"jar")
    elif change == "removed":
        jar.unlink()
    else:
        jar.unlink()
        jar.symlink_to(tmp_path / "elsewhere.jar")
    with pytest.raises(ServiceError, match="was changed after it was verified") as raised:
        unpack(archive, cache=tmp_path / "cache")
    assert raised.value.where.startswith(str(folder))
    assert f"rm -r {folder}" in raised.value.next_step
    shutil.rmtree(folder)
    assert (unpack(archive, cache=tmp_path / "cache") / "lib" / "a.jar").read_bytes() == b"jar"


def test_find_connect_returns_the_users_own(tmp_path: Path) -> None:
    environ = {"HEADRACE_CONNECT_URL": "http://me:hidden@127.0.0.1:1/", "HEADRACE_REGISTRY_URL": "http://127.0.0.1:1"}
    settings = load_settings(flags={}, environ=environ, folder=tmp_path)
    assert (find_connect(settings), find_registry(settings)) == ("http://me:hidden@127.0.0.1:1", "http://127.0.0.1:1")
    with pytest.raises(UnavailableError) as refused, connect(settings, report=print):
        pass
    assert refused.value.what == "no Kafka Connect answers on http://127.0.0.1:1/"
    assert "connect.url, from environment (HEADRACE_CONNECT_URL)" in str(refused.value)
    with pytest.raises(UnavailableError, match="no schema registry answers on"), registry(settings, report=print):
        pass
    shown = {origin.name: origin.value for origin in origins_of(settings)}
    assert (shown["connect.url"], shown["registry.url"]) == ("http://127.0.0.1:1/", "http://127.0.0.1:1")
    assert "hidden" not in repr(settings)
    says = {finding.subject: finding.says for finding in examine(settings, environ={})}
    assert says["Connect"] == "your own server, not checked: http://127.0.0.1:1/"


def test_connect_refuses_an_address_that_does_not_answer() -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1/x does not answer"):
        ask("http://user:hidden@127.0.0.1:1/x?token=hidden")
    assert without_secrets("http://user:hidden@host:8083/a?b=c") == "http://host:8083/a"
