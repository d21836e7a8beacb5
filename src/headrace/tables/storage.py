"""Files in the warehouse, on a local disk or in an object store, that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

SUFFIX_IN_PROGRESS = ".inprogress"


def as_uri(location: str, *, folder: Path) -> str:
    """Gives back `location` as a URI; a plain path is taken relative to `folder`."""
    if urlsplit(location).scheme:
        return location.rstrip("/")
    return f"file://{(folder / location).resolve()}"


def local_path(uri: str) -> Path | None:
    """Gives back the path of a file on this machine's disk, or None for an object store."""
    parts = urlsplit(uri)
    return Path(parts.path) if parts.scheme in ("", "file") else None


@contextmanager
def new_file(uri: str) -> Iterator[pa.NativeFile]:
    """Opens a file that appears under its name, durably, only when the block ends without an error."""
    path = local_path(uri)
    if path is None:
        filesystem, key = fs.FileSystem.from_uri(uri)
        with filesystem.open_output_stream(key) as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}{SUFFIX_IN_PROGRESS}")
    try:
        with pa.OSFile(str(hidden), "wb") as stream:
            yield stream
        _sync(hidden)
        hidden.rename(path)
        _sync(path.parent)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def read_text(uri: str) -> str:
    path = local_path(uri)
    if path is not None:
        return path.read_text(encoding="utf-8")
    filesystem, key = fs.FileSystem.from_uri(uri)
    with filesystem.open_input_stream(key) as stream:
        return bytes(stream.read()).decode("utf-8")


def list_files(uri: str, *, suffix: str) -> tuple[str, ...]:
    """Gives back the URIs of all files under `uri` that end in `suffix`; hidden ones are left out."""
    path = local_path(uri)
    if path is not None:
        found = sorted(file for file in path.rglob(f"*{suffix}") if not file.name.startswith("."))
        return tuple(f"file://{file}" for file in found)
    scheme = urlsplit(uri).scheme
    filesystem, key = fs.FileSystem.from_uri(uri)
    infos = filesystem.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True))
    return tuple(f"{scheme}://{info.path}" for info in infos if info.is_file and info.path.endswith(suffix))


@dataclass(frozen=True)
class StoredFile:
    """A file, hidden ones included, and when it was last written, in seconds since 1970."""

    uri: str
    modified: float


def list_all(*uris: str) -> tuple[StoredFile, ...]:
    """Gives back all files under these folders, each once; those that are hidden or half written too."""
    found: dict[str, StoredFile] = {}
    for uri in uris:
        filesystem, key = _find(uri)
        scheme = urlsplit(uri).scheme or "file"
        for info in filesystem.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True)):
            if info.is_file:
                one = StoredFile(f"{scheme}://{info.path}", (info.mtime_ns or 0) / 1e9)
                found[one.uri] = one
    return tuple(sorted(found.values(), key=lambda file: file.uri))


def delete_file(uri: str) -> None:
    """Deletes a file for good. Idempotent: one that is gone already stays gone."""
    filesystem, key = _find(uri)
    try:
        filesystem.delete_file(key)
    except FileNotFoundError:
        return


def exists(uri: str) -> bool:
    path = local_path(uri)
    if path is not None:
        return path.exists()
    filesystem, key = fs.FileSystem.from_uri(uri)
    return bool(filesystem.get_file_info(key).is_file)


def open_input(uri: str) -> pa.NativeFile:
    path = local_path(uri)
    if path is not None:
        return pa.OSFile(str(path), "rb")
    filesystem, key = fs.FileSystem.from_uri(uri)
    return filesystem.open_input_file(key)


def _find(uri: str) -> tuple[fs.FileSystem, str]:
    """Gives back the filesystem that a file is in, and what it is called there."""
    path = local_path(uri)
    return fs.FileSystem.from_uri(uri) if path is None else (fs.LocalFileSystem(), str(path))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
