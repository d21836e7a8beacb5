"""The jars that Kafka and Spark run on: downloaded once, checked by sha256, then taken from the cache, offline.

A group is a folder with `jgo.toml` (what is wanted) and `jgo.lock.toml` (what that came to, each jar with its sha256;
`python -m headrace.services.jar_lock <folder>` writes it). jgo finds and downloads a jar; it writes straight to the
final place and does not compare the lock's sha256, so here every jar is downloaded into a folder of its own, checked,
and only then moved into the cache in one step: what is in the cache is whole.

The cache is `$HEADRACE_CACHE`, else `$XDG_CACHE_HOME/headrace`, else `~/.cache/headrace`: `jars/` in Maven's layout,
and `classpaths/`, which remembers for each lock the size and time of every jar that was checked. While they are
unchanged no jar is read again; one that changed is checked again, and downloaded again if it is not what the lock says.
A company's mirror: `central = <address>` under `[repositories]` in jgo's own `~/.config/jgo.conf`.
"""

from __future__ import annotations

import hashlib
import json
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

from headrace.errors import ServiceError
from headrace.services.locks import locked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GROUPS = Path(__file__).parent / "jars"
OPTIONAL = frozenset({"aws", "catalog", "postgres", "s3", "trino"})
"""Groups that only some need: they are downloaded when somebody does."""

_ATTEMPTS = 3
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
    """Gives back the folder that jars are kept in, for all pipelines of this user."""
    if environ.get("HEADRACE_CACHE"):
        return Path(environ["HEADRACE_CACHE"]).expanduser().resolve()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def resolve_jars(name: str | Path, *, report: Callable[[str], None], cache: Path | None = None) -> tuple[Path, ...]:
    """Gives back the jars of a group, in class path order; each is exactly the one that the lock names.

    `name` is a group of Headrace's own (`kafka`, `spark`) or a folder with its own `jgo.lock.toml`.
    """
    lock = (name if isinstance(name, Path) else GROUPS / name) / "jgo.lock.toml"
    content = _read_lock(lock)
    cache = cache or cache_folder(os.environ)
    known = cache / "classpaths" / f"{hashlib.sha256(content).hexdigest()}.json"
    jars = _recall(known, folder=cache / "jars")
    if jars:
        return jars
    wanted = _parse_lock(content, path=lock)
    try:
        with locked(cache / "lock", timeout=1800, waiting=lambda: report("Waiting for another download to end")):
            missing = [jar for jar in wanted if not _is_whole(cache / "jars" / jar.path, sha256=jar.sha256)]
            if missing:
                _download(
                    missing,
                    title=name if isinstance(name, str) else f"{name.parent.name}/{name.name}",
                    folder=cache / "jars",
                    report=report,
                )
            jars = tuple(cache / "jars" / jar.path for jar in wanted)
            _remember(known, jars, folder=cache / "jars")
    except OSError as error:
        raise ServiceError(
            f"the jar cache can't be written: {error.strerror or error}",
            where=str(cache),
            next_step="Free some space or allow writing there, or set HEADRACE_CACHE to another folder.",
        ) from error
    return jars


def cached_jars(name: str, *, cache: Path | None = None) -> tuple[Path, ...]:
    """Gives back a group's jars if all are in the cache, else nothing; downloads nothing."""
    cache = cache or cache_folder(os.environ)
    content = _read_lock(GROUPS / name / "jgo.lock.toml")
    return _recall(cache / "classpaths" / f"{hashlib.sha256(content).hexdigest()}.json", folder=cache / "jars")


def _read_lock(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ServiceError(
            "this group of jars has no lock file",
            where=str(path),
            next_step=f"Run: python -m headrace.services.jar_lock {path.parent}",
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
            f"not a lock file of jars with a sha256 each: {error}",
            where=str(path),
            next_step=f"Run: python -m headrace.services.jar_lock {path.parent}",
        ) from error


def _recall(known: Path, *, folder: Path) -> tuple[Path, ...]:
    """Gives back the jars that were checked before, or none if even one of them is not as it was then."""
    try:
        entries = json.loads(known.read_bytes())
        for path, size, changed in entries:
            stat = os.stat(folder / path)
            if (stat.st_size, stat.st_mtime_ns) != (size, changed):
                return ()
        return tuple(folder / path for path, _, _ in entries)
    except (OSError, ValueError, TypeError):
        return ()


def _remember(known: Path, jars: tuple[Path, ...], *, folder: Path) -> None:
    entries = [(str(jar.relative_to(folder)), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    known.parent.mkdir(parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=known.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(entries, file)
    os.replace(written, known)


def _is_whole(path: Path, *, sha256: str) -> bool:
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            return digest.hexdigest() == sha256
    except FileNotFoundError:
        return False


def _download(jars: list[Jar], *, title: str, folder: Path, report: Callable[[str], None]) -> None:
    """Puts every jar into its place in `folder`, whole and checked, or raises a ServiceError."""
    began = time.monotonic()
    report(f"Downloading {len(jars)} jars for {title} (once; later they come from {folder})")
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob(".download-*"):  # of a download that was killed; the lock says that none runs now
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as fresh, _progress(len(jars), title) as show:
        pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
        ended = Event()

        def count(more_bytes: int, more_jars: int) -> None:
            if ended.is_set():  # Ctrl-C, or another jar can't be had: don't download the rest first
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
    """Gives back the size of a jar that is now in its place; tries again where that may help."""
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext, PythonResolver
    from jgo.maven._core import DEFAULT_REMOTE_REPOS

    @contextmanager
    def follow(_: str, __: int) -> Iterator[Callable[[int], None]]:
        yield lambda size: count(size, 0)

    problem = ""
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt)
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
                if _is_whole(path, sha256=jar.sha256):
                    size = path.stat().st_size
                    place = folder / jar.path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(path, place)
                    count(0, 1)
                    return size
                problem = "what was downloaded is not the jar that the lock names (its sha256 differs)"
            except OSError as error:  # requests' errors are OSErrors too
                if error.errno is not None:  # the disk's, not the network's
                    raise
                problem = f"{type(error).__name__}: the repository could not be reached"
            except RuntimeError:
                problem = "no repository has it"
    raise ServiceError(
        f"{jar.artifact} {jar.version} could not be downloaded: {problem}",
        where=f"after {_ATTEMPTS} attempts",
        next_step="The first run needs the Internet: check the connection (or HTTPS_PROXY, or the mirror in"
        " ~/.config/jgo.conf) and run the same command again. What was already downloaded is kept.",
    )


@contextmanager
def _progress(total: int, title: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that takes more bytes and more finished jars; shows a bar where there is a terminal."""
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
