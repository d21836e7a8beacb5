"""Unpack distributions into the cache, once, and verify their files against the archive."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from headrace.errors import ServiceError
from headrace.file_locks import locked
from headrace.servers.verified_files import hash_file, hash_stream, read_verified, record_verified, tampered

ENDING = ".tar.gz"
ZIPPED = ".zip"


def unpack(archive: Path, *, cache: Path) -> Path:
    """Return the folder with an archive's files; it is complete or does not exist.

    The lock file confirmed the archive's sha256, and its name includes its version, so it is unpacked once. At the first use
    after a boot, and when a file or folder has changed since, compares every file with the archive. Raises a ServiceError if a
    file differs, is missing, or was added.
    """
    folder = cache / "unpacked" / archive.name.removesuffix(ENDING).removesuffix(ZIPPED)
    try:
        if not folder.is_dir():
            _unpack_once(archive, folder, cache=cache)
        _verify(archive, folder)
    except OSError as error:
        raise ServiceError(
            f"{archive.name} can't be unpacked: {error.strerror or error}",
            where=str(cache),
            next_step="Free some space or allow writing there, or set HEADRACE_CACHE to another folder.",
        ) from error
    return folder


def _unpack_once(archive: Path, folder: Path, *, cache: Path) -> None:
    with locked(cache / "unpacked.lock", timeout=600, waiting=lambda: None):
        if folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unpacking-"))
        try:
            _extract(archive, fresh)
            os.rename(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _extract(archive: Path, folder: Path) -> None:
    if archive.suffix == ZIPPED:
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)
        return
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")


def _verify(archive: Path, folder: Path) -> None:
    memory = folder.parent / f".{folder.name}.verified.json"
    if read_verified(memory, folder=folder):
        return
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    expected = set()
    for name, target, content in _members(archive):
        expected.add(name)
        path = folder / name
        same = os.path.islink(path) and os.readlink(path) == target if target else hash_file(path) == content
        if not same:
            raise tampered(path, reason=f"it differs from {archive.name}", remove=folder)
    for name in sorted(files - expected):
        raise tampered(folder / name, reason=f"{archive.name} has no such file", remove=folder)
    record_verified(memory, [folder, *folder.rglob("*")], folder=folder)


def _members(archive: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the target of a symbolic link, and the sha256 of each file in an archive."""
    if archive.suffix == ZIPPED:
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if not entry.is_dir():
                    with zipped.open(entry) as content:
                        yield _normal(entry.filename), "", hash_stream(content)  # type: ignore[arg-type]
        return
    with tarfile.open(archive) as file:
        for member in file:
            if member.issym():
                yield _normal(member.name), member.linkname, ""
            elif member.isfile() or member.islnk():
                opened = file.extractfile(member)
                assert opened is not None
                with opened:
                    yield _normal(member.name), "", hash_stream(opened)  # type: ignore[arg-type]


def _normal(name: str) -> str:
    return PurePosixPath(name).as_posix().removeprefix("/")
