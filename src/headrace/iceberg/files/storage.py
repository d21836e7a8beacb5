"""Atomic files in the warehouse, on a local disk or in an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO

from headrace.errors import SettingsError
from headrace.settings import SENSITIVE

SUFFIX_IN_PROGRESS = ".inprogress"
_OPTIONS = ("s3.", "client.")


@dataclass(frozen=True)
class Storage:
    """Connection options of an object store: a value that is sent to executors with a task. Its repr contains no keys.

    The option names are PyIceberg's (`s3.endpoint`, `s3.access-key-id`), so that all files of a table are accessed the same
    way.
    """

    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> Storage:
        """Return the storage options among a catalog's properties."""
        options = {name: str(value) for name, value in properties.items() if name.startswith(_OPTIONS)}
        return cls(tuple(sorted(options.items())))

    def without_secrets(self, text: str) -> str:
        """Return the text with the storage's secrets redacted."""
        for name, value in self.options:
            if value and re.search(SENSITIVE, name):
                text = text.replace(value, "***")
        return text

    def find(self, uri: str) -> tuple[fs.FileSystem, str]:
        """Return the filesystem of a URI, and the path or key in it."""
        path = local_path(uri)
        return (fs.LocalFileSystem(), str(path)) if path else _find(self, uri)


DISK = Storage()
"""The local disk only."""


def as_uri(location: str, *, folder: Path) -> str:
    """Return `location` as a URI; a plain path is taken relative to `folder`."""
    if urlsplit(location).scheme:
        return location.rstrip("/")
    return f"file://{(folder / location).resolve()}"


def local_path(uri: str) -> Path | None:
    """Return the path of a file on the local disk, or None for an object store."""
    parts = urlsplit(uri)
    return Path(parts.path) if parts.scheme in ("", "file") else None


@contextmanager
def new_file(uri: str, *, storage: Storage = DISK) -> Iterator[pa.NativeFile]:
    """Open a new file that becomes visible, durably, only if the block ends without an error."""
    path = local_path(uri)
    if path is None:
        filesystem, key = storage.find(uri)
        stream = filesystem.open_output_stream(key)
        try:
            yield stream
        except BaseException:
            _drop(filesystem, key, stream)
            raise
        stream.close()
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


def read_text(uri: str, *, storage: Storage = DISK) -> str:
    path = local_path(uri)
    if path is not None:
        return path.read_text(encoding="utf-8")
    filesystem, key = storage.find(uri)
    with filesystem.open_input_stream(key) as stream:
        return bytes(stream.read()).decode("utf-8")


def list_files(uri: str, *, suffix: str, storage: Storage = DISK) -> tuple[str, ...]:
    """Return the URIs of all files under `uri` that end in `suffix`, except hidden ones."""
    path = local_path(uri)
    if path is not None:
        files = sorted(file for file in path.rglob(f"*{suffix}") if not file.name.startswith("."))
        return tuple(f"file://{file}" for file in files)
    return tuple(file.uri for file in list_all(uri, storage=storage) if file.uri.endswith(suffix))


@dataclass(frozen=True)
class StoredFile:
    """A file in the storage, with its last modification in seconds since 1970."""

    uri: str
    modified: float


def list_all(*uris: str, storage: Storage = DISK) -> tuple[StoredFile, ...]:
    """Return all files under these folders without duplicates, including hidden and incomplete ones."""
    files: dict[str, StoredFile] = {}
    for uri in uris:
        filesystem, key = storage.find(uri)
        scheme = urlsplit(uri).scheme or "file"
        for info in filesystem.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True)):
            if info.is_file:
                file = StoredFile(f"{scheme}://{info.path}", (info.mtime_ns or 0) / 1e9)
                files[file.uri] = file
    return tuple(sorted(files.values(), key=lambda file: file.uri))


def delete_file(uri: str, *, storage: Storage = DISK) -> None:
    """Delete a file. Idempotent: a missing file is no error."""
    filesystem, key = storage.find(uri)
    try:
        filesystem.delete_file(key)
    except FileNotFoundError:
        return


def exists(uri: str, *, storage: Storage = DISK) -> bool:
    path = local_path(uri)
    if path is not None:
        return path.exists()
    filesystem, key = storage.find(uri)
    return bool(filesystem.get_file_info(key).is_file)


def open_input(uri: str, *, storage: Storage = DISK) -> pa.NativeFile:
    path = local_path(uri)
    if path is not None:
        return pa.OSFile(str(path), "rb")
    filesystem, key = storage.find(uri)
    return filesystem.open_input_file(key)


@lru_cache(maxsize=16)
def _filesystem(storage: Storage, scheme: str, bucket: str) -> fs.FileSystem:
    """Return a filesystem, created once and cached with its connections."""
    return PyArrowFileIO(dict(storage.options)).fs_by_scheme(scheme, bucket)


def _find(storage: Storage, uri: str) -> tuple[fs.FileSystem, str]:
    scheme, bucket, key = PyArrowFileIO.parse_location(uri)
    if storage == DISK:
        raise SettingsError(
            "no connection settings for this object store",
            where=uri,
            next_step="Set `warehouse` to the object store's address: the s3 settings apply to the warehouse of a profile.",
        )
    return _filesystem(storage, scheme, bucket), key


def _drop(filesystem: fs.FileSystem, key: str, stream: pa.NativeFile) -> None:
    """Delete an aborted object. Closing the stream is the only way to end it, and creates the object."""
    try:
        stream.close()
        filesystem.delete_file(key)
    except OSError:
        pass  # an outage: if the store has the object, it is an orphan file


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
