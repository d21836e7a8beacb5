"""Provide the jars of Kafka, Spark and the other servers: downloaded once, checked by sha256, then used offline from the cache.

A group is a folder with `jgo.toml` (the requirements) and `jgo.lock.toml` (the resolved jars with their sha256, written by
`python -m headrace.servers.jar_lock <folder>`). jgo downloads a jar directly to its target and does not compare the sha256. So
here every jar is downloaded to a temporary folder, checked, and then moved into the cache atomically: the cache has no partial
jars.

The cache is `$HEADRACE_CACHE`, else `$XDG_CACHE_HOME/headrace`, else `~/.cache/headrace`: `jars/` in Maven's layout, and
`classpaths/`, which records for each lock the jars that were verified since the machine booted (verified_files.py). A jar that
differs from the lock is an error: it is neither run nor replaced.
To use a mirror, set `central = <address>` under `[repositories]` in jgo's `~/.config/jgo.conf`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from headrace.backoff import DOWNLOADS
from headrace.errors import ServiceError
from headrace.file_locks import locked
from headrace.servers.verified_files import hash_file, read_verified, record_verified, tampered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GROUPS = Path(__file__).parent / "jars"
OPTIONAL = frozenset({"aws", "catalog", "postgres", "s3", "trino"})
"""Groups that are downloaded on first use only."""

_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Jar:
    """One jar of a lock file."""

    group: str
    artifact: str
    version: str
    classifier: str
    packaging: str
    sha256: str

    @property
    def path(self) -> str:
        suffix = f"-{self.classifier}" if self.classifier else ""
        file = f"{self.artifact}-{self.version}{suffix}.{self.packaging}"
        return "/".join([*self.group.split("."), self.artifact, self.version, file])


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the cache folder, which all pipelines of a user share."""
    if environ.get("HEADRACE_CACHE"):
        return Path(environ["HEADRACE_CACHE"]).expanduser().resolve()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def resolve_jars(name: str | Path, *, report: Callable[[str], None], cache: Path | None = None) -> tuple[Path, ...]:
    """Return the jars of a group in class path order, each verified against the lock; download missing ones.

    `name` is a built-in group (`kafka`, `spark`) or a folder with a `jgo.lock.toml`. Raises a ServiceError if a jar can't be
    downloaded, or differs from the lock.
    """
    lock = (name if isinstance(name, Path) else GROUPS / name) / "jgo.lock.toml"
    content = _read_lock(lock)
    cache = cache or cache_folder(os.environ)
    jars = _verified(content, lock=lock, cache=cache)
    if jars:
        return jars
    wanted = _parse_lock(content, path=lock)
    try:
        with locked(cache / "lock", timeout=1800, waiting=lambda: report("Waiting for another download to finish")):
            missing = [jar for jar in wanted if not (cache / "jars" / jar.path).exists()]
            if missing:
                _download(
                    missing,
                    title=name if isinstance(name, str) else f"{name.parent.name}/{name.name}",
                    folder=cache / "jars",
                    report=report,
                )
            jars = _verified(content, lock=lock, cache=cache)
    except OSError as error:
        raise ServiceError(
            f"the jar cache can't be written: {error.strerror or error}",
            where=str(cache),
            next_step="Free some space or allow writing there, or set HEADRACE_CACHE to another folder.",
        ) from error
    return jars


def cached_jars(name: str, *, cache: Path | None = None) -> tuple[Path, ...]:
    """Return a group's jars if all are in the cache, else none; downloads nothing.

    Raises a ServiceError if a jar differs from the lock.
    """
    lock = GROUPS / name / "jgo.lock.toml"
    return _verified(_read_lock(lock), lock=lock, cache=cache or cache_folder(os.environ))


def _verified(content: bytes, *, lock: Path, cache: Path) -> tuple[Path, ...]:
    """Return a lock's jars if all exist, else none. Raises a ServiceError if one differs from its sha256."""
    folder = cache / "jars"
    memory = cache / "classpaths" / f"{hashlib.sha256(content).hexdigest()}.json"
    jars = read_verified(memory, folder=folder)
    if jars:
        return jars
    wanted = _parse_lock(content, path=lock)
    paths = tuple(folder / jar.path for jar in wanted)
    if not all(path.exists() for path in paths):
        return ()
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for jar, path, sha256 in zip(wanted, paths, pool.map(hash_file, paths), strict=True):
            if sha256 != jar.sha256:
                raise tampered(path, reason="its sha256 is not the one of the lock", remove=path)
    record_verified(memory, paths, folder=folder)
    return paths


def _read_lock(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ServiceError(
            "this group of jars has no lock file",
            where=str(path),
            next_step=f"Run: python -m headrace.servers.jar_lock {path.parent}",
        ) from error


def _parse_lock(content: bytes, *, path: Path) -> tuple[Jar, ...]:
    try:
        return tuple(
            Jar(
                group=entry["groupId"],
                artifact=entry["artifactId"],
                version=entry["version"],
                classifier=entry.get("classifier", ""),
                packaging=entry.get("packaging", "jar"),
                sha256=entry["sha256"],
            )
            for entry in tomllib.loads(content.decode())["dependencies"]
        )
    except (ValueError, KeyError) as error:
        raise ServiceError(
            f"not a valid lock file: {error}",
            where=str(path),
            next_step=f"Run: python -m headrace.servers.jar_lock {path.parent}",
        ) from error


def _download(jars: list[Jar], *, title: str, folder: Path, report: Callable[[str], None]) -> None:
    """Download every jar to `folder`, checked by sha256. Raises a ServiceError if one can't be downloaded."""
    began = time.monotonic()
    report(f"Downloading {len(jars)} jars for {title} (once, to {folder})")
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob(".download-*"):  # from a killed download; the caller's lock excludes a running one
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as fresh, _progress(len(jars), title) as show:
        pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
        ended = Event()

        def count(more_bytes: int, more_jars: int) -> None:
            if ended.is_set():  # Ctrl-C, or another jar failed: stop this download too
                raise CancelledError
            show(more_bytes, more_jars)

        try:
            sizes = list(pool.map(lambda jar: _fetch(jar, fresh=Path(fresh), folder=folder, count=count), jars))
        finally:
            ended.set()
            pool.shutdown(wait=True, cancel_futures=True)
    seconds = time.monotonic() - began
    report(f"Downloaded {len(jars)} jars for {title}: {sum(sizes) / 1e6:.0f} MB in {seconds:.0f} s")


def _fetch(jar: Jar, *, fresh: Path, folder: Path, count: Callable[[int, int], None]) -> int:
    """Download a jar to its place and return its size; retry up to three times."""
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext, PythonResolver
    from jgo.maven._core import DEFAULT_REMOTE_REPOS

    @contextmanager
    def follow(_: str, __: int) -> Iterator[Callable[[int], None]]:
        yield lambda size: count(size, 0)

    def attempt() -> int:
        with tempfile.TemporaryDirectory(dir=fresh) as own:
            context = MavenContext(
                resolver=PythonResolver(progress_callback=follow),
                repo_cache=Path(own),
                remote_repos={**DEFAULT_REMOTE_REPOS, **GlobalSettings.load().repositories},
                timeout=60,
            )
            project = context.project(jar.group, jar.artifact).at_version(jar.version)
            try:
                path = project.artifact(classifier=jar.classifier, packaging=jar.packaging).resolve()
                if hash_file(path) == jar.sha256:
                    size = path.stat().st_size
                    place = folder / jar.path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(path, place)
                    count(0, 1)
                    return size
                problem = "the sha256 of the downloaded jar differs from the lock"
            except OSError as error:  # requests' errors are OSErrors too
                if error.errno is not None:  # from the disk, not the network
                    raise
                problem = f"{type(error).__name__}: the repository could not be reached"
            except RuntimeError:
                problem = "not found in any repository"
        raise ServiceError(
            f"{jar.artifact} {jar.version} could not be downloaded: {problem}",
            where=f"after {DOWNLOADS.attempts} attempts",
            next_step="The first run requires Internet access: check the connection (or HTTPS_PROXY, or the mirror in"
            " ~/.config/jgo.conf) and run the same command again. Downloaded jars are kept.",
        )

    return DOWNLOADS.retry(attempt, on=lambda error: isinstance(error, ServiceError))


@contextmanager
def _progress(total: int, title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that adds bytes and finished jars to a progress bar, which is shown on a terminal only."""
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jars, {task.fields[size]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(f"Downloading {title}", total=total, size="0 bytes")
        received = 0

        def show(more_bytes: int, more_jars: int) -> None:
            nonlocal received
            received += more_bytes
            progress.update(task, advance=more_jars, size=decimal(received))

        yield show


if __name__ == "__main__":
    for group in sorted(path.name for path in GROUPS.iterdir() if path.is_dir() and path.name not in OPTIONAL):
        resolve_jars(group, report=print)
