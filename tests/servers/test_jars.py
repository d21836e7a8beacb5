"""Jars from a local repository: the cache has complete jars only and works offline."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.backoff import Backoff
from headrace.errors import ServiceError
from headrace.servers import jars, verified_files
from headrace.servers.jar_lock import write_lock
from headrace.servers.jars import cache_folder, resolve_jars
from headrace.servers.verified_files import hash_file
from tests.support.waiting import wait_until

ALPHA = ("org.example", "alpha", "1.0", b"alpha" * 40_000)
BETA = ("org.example.deep", "beta", "2.1", b"beta" * 10_000)


def path_of(group: str, artifact: str, version: str) -> str:
    return f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


class Repository:
    """A repository: its files, its simulated failures, and the requests it got."""

    def __init__(self) -> None:
        self.files = {path_of(*jar[:3]): jar[3] for jar in (ALPHA, BETA)}
        self.asked: list[str] = []
        self.cut_after: int | None = None
        self.stall = False


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    served = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            served.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: served.cut_after])
            self.wfile.flush()
            if served.stall:
                time.sleep(20)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    config = tmp_path / "jgo.conf"
    config.write_text(f"[repositories]\ncentral = http://127.0.0.1:{server.server_port}\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(jars, "DOWNLOADS", Backoff(1.0, attempts=2))
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def group(tmp_path: Path) -> Path:
    folder = tmp_path / "group"
    folder.mkdir()
    entries = [
        f'[[dependencies]]\ngroupId = "{group}"\nartifactId = "{artifact}"\nversion = "{version}"\n'
        f'packaging = "jar"\nsha256 = "{hashlib.sha256(content).hexdigest()}"\n'
        for group, artifact, version, content in (ALPHA, BETA)
    ]
    (folder / "jgo.lock.toml").write_text("\n".join(entries))
    return folder


def cut_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def jars_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "jars").rglob("*.jar"))


def test_first_call_downloads_and_later_ones_need_no_network(
    tmp_path: Path, repository: Repository, group: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    jars = resolve_jars(group, report=said.append, cache=cache)
    assert [path.read_bytes() for path in jars] == [ALPHA[3], BETA[3]]
    assert said[0].startswith(f"Downloading 2 jars for {tmp_path.name}/group")
    assert said[1].startswith(f"Downloaded 2 jars for {tmp_path.name}/group")
    cut_the_network(monkeypatch)
    assert resolve_jars(group, report=said.append, cache=cache) == jars
    assert len(said) == 2
    assert sorted(repository.asked) == sorted(repository.files)


def test_cache_without_its_memory_is_checked_and_used_offline(
    tmp_path: Path, repository: Repository, group: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    jars = resolve_jars(group, report=said.append, cache=cache)
    for file in (cache / "classpaths").iterdir():
        file.write_text("[[")
    cut_the_network(monkeypatch)
    assert resolve_jars(group, report=said.append, cache=cache) == jars


@pytest.mark.parametrize("tampered", [b"x" * len(ALPHA[3]), b"short", b""])
def test_tampered_jar_is_refused(tmp_path: Path, repository: Repository, group: Path, said: list[str], tampered: bytes) -> None:
    jars = resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    before = jars[0].stat()
    jars[0].write_bytes(tampered)
    os.utime(jars[0], ns=(before.st_atime_ns, before.st_mtime_ns))  # as an attacker would to hide the change
    with pytest.raises(ServiceError, match=r"alpha-1\.0\.jar was changed after it was verified") as raised:
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    assert raised.value.where == str(jars[0])
    assert f"rm -r {jars[0]}" in raised.value.next_step
    jars[0].unlink()
    assert resolve_jars(group, report=said.append, cache=tmp_path / "cache") == jars
    assert jars[0].read_bytes() == ALPHA[3]
    assert repository.asked.count(path_of(*BETA[:3])) == 1


def test_jars_are_hashed_once_per_boot(
    tmp_path: Path, repository: Repository, group: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def count(path: Path) -> str | None:
        hashed.append(path.name)
        return hash_file(path)

    resolved = resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    monkeypatch.setattr(jars, "hash_file", count)
    assert resolve_jars(group, report=said.append, cache=tmp_path / "cache") == resolved
    assert hashed == []
    monkeypatch.setattr(verified_files, "boot_id", lambda: "another boot")
    assert resolve_jars(group, report=said.append, cache=tmp_path / "cache") == resolved
    assert sorted(hashed) == ["alpha-1.0.jar", "beta-2.1.jar"]


def test_repository_that_serves_another_jar_is_refused(
    tmp_path: Path, repository: Repository, group: Path, said: list[str]
) -> None:
    repository.files[path_of(*ALPHA[:3])] = b"something else"
    with pytest.raises(ServiceError, match=r"alpha 1\.0 could not be downloaded.*sha256 of the downloaded jar differs"):
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    assert "alpha-1.0.jar" not in jars_in(tmp_path / "cache")


def test_connection_that_breaks_leaves_no_half_jar(
    tmp_path: Path, repository: Repository, group: Path, said: list[str]
) -> None:
    repository.cut_after = 1000
    with pytest.raises(ServiceError, match="could not be downloaded"):
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    assert jars_in(tmp_path / "cache") == []
    repository.cut_after = None
    assert resolve_jars(group, report=said.append, cache=tmp_path / "cache")[0].read_bytes() == ALPHA[3]


def test_download_that_is_killed_leaves_no_half_jar(
    tmp_path: Path, repository: Repository, group: Path, said: list[str], child_environ: dict[str, str]
) -> None:
    repository.cut_after, repository.stall = 1000, True
    program = (
        "import sys; from pathlib import Path; from headrace.servers.jars import resolve_jars\n"
        "resolve_jars(Path(sys.argv[1]), report=print, cache=Path(sys.argv[2]))"
    )
    cache = tmp_path / "cache"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(group), str(cache)], env=child_environ, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: repository.asked, what="the first request", seconds=60)
    time.sleep(0.3)
    child.send_signal(signal.SIGKILL)
    child.wait()
    repository.cut_after, repository.stall = None, False
    jars = resolve_jars(group, report=said.append, cache=cache)
    assert [path.read_bytes() for path in jars] == [ALPHA[3], BETA[3]]
    assert not list((cache / "jars").glob(".download-*"))


def test_two_at_once_download_once(tmp_path: Path, repository: Repository, group: Path, said: list[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(resolve_jars, group, report=said.append, cache=tmp_path / "cache") for _ in range(2)]
        assert calls[0].result() == calls[1].result()
    assert len(repository.asked) == 2


def test_no_network_at_the_first_download_says_what_to_do(
    tmp_path: Path, group: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "DOWNLOADS", Backoff(1.0, attempts=1))
    cut_the_network(monkeypatch)
    with pytest.raises(ServiceError) as caught:
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")
    assert "could not be reached" in caught.value.what
    assert caught.value.next_step.startswith("The first run requires Internet access")


def test_jar_in_no_repository_is_an_error(tmp_path: Path, repository: Repository, group: Path, said: list[str]) -> None:
    del repository.files[path_of(*BETA[:3])]
    with pytest.raises(ServiceError, match=r"beta 2\.1 could not be downloaded: not found in any repository"):
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")


def test_cache_that_cannot_be_written(tmp_path: Path, group: Path, said: list[str]) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="HEADRACE_CACHE"):
        resolve_jars(group, report=said.append, cache=tmp_path / "cache")


def test_group_without_a_lock_says_how_to_write_one(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(ServiceError, match=r"headrace\.servers\.jar_lock"):
        resolve_jars(tmp_path, report=said.append, cache=tmp_path)
    (tmp_path / "jgo.lock.toml").write_text('[[dependencies]]\ngroupId = "a"\nartifactId = "b"\nversion = "1"\n')
    with pytest.raises(ServiceError, match="sha256"):
        resolve_jars(tmp_path, report=said.append, cache=tmp_path)


def test_lock_is_written_with_sha256_and_without_an_address(tmp_path: Path, repository: Repository) -> None:
    pom = "<project><modelVersion>4.0.0</modelVersion><groupId>{}</groupId><artifactId>{}</artifactId><version>{}"
    for jar in (ALPHA, BETA):
        text = (pom + "</version></project>").format(*jar[:3])
        repository.files[path_of(*jar[:3]).replace(".jar", ".pom")] = text.encode()
    (tmp_path / "jgo.toml").write_text('[dependencies]\ncoordinates = ["org.example:alpha:1.0"]\n')
    lock = write_lock(tmp_path).read_text()
    assert hashlib.sha256(ALPHA[3]).hexdigest() in lock
    assert "127.0.0.1" not in lock


@pytest.mark.parametrize(
    "folder",
    [*(path for path in sorted(jars.GROUPS.iterdir()) if path.is_dir()), Path(__file__).parents[2] / "benchmarks" / "jars"],
)
def test_committed_locks_are_in_step_and_name_no_repository(folder: Path) -> None:
    from jgo.env import LockFile, compute_spec_hash

    lock = LockFile.load(folder / "jgo.lock.toml")
    assert lock.spec_hash == compute_spec_hash(folder / "jgo.toml")
    assert lock.dependencies
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256 or "") for jar in lock.dependencies)
    for name in ("jgo.toml", "jgo.lock.toml"):
        assert "://" not in (folder / name).read_text()


def test_kafka_has_one_version_of_everything() -> None:
    from jgo.env import LockFile

    lock = LockFile.load(jars.GROUPS / "kafka" / "jgo.lock.toml")
    versions = {jar.version for jar in lock.dependencies if jar.groupId == "org.apache.kafka"}
    assert versions == {"4.3.1"}


def test_cache_folder_can_be_chosen(tmp_path: Path) -> None:
    assert cache_folder({"HEADRACE_CACHE": str(tmp_path)}) == tmp_path.resolve()
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/headrace")
    assert cache_folder({}) == Path(os.path.expanduser("~/.cache/headrace"))
