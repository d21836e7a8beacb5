"""Distributions that come as an archive: unpacked once, beside the jars in the cache."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from headrace.errors import ServiceError
from headrace.services.locks import locked

ENDING = ".tar.gz"
ZIPPED = ".zip"


def unpack(archive: Path, *, cache: Path) -> Path:
    """Gives back the folder with an archive's files, which is there in whole or not at all.

    The archive is one that the lock file's sha256 was checked for, and its name has its version, so it is unpacked once.
    """
    folder = cache / "unpacked" / archive.name.removesuffix(ENDING).removesuffix(ZIPPED)
    if folder.is_dir():
        return folder
    try:
        with locked(cache / "unpacked.lock", timeout=600, waiting=lambda: None):
            if not folder.is_dir():
                folder.parent.mkdir(parents=True, exist_ok=True)
                fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unpacking-"))
                try:
                    _extract(archive, fresh)
                    os.rename(fresh, folder)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise ServiceError(
            f"{archive.name} can't be unpacked: {error.strerror or error}",
            where=str(cache),
            next_step="Free some space or allow writing there, or set HEADRACE_CACHE to another folder.",
        ) from error
    return folder


def _extract(archive: Path, folder: Path) -> None:
    if archive.suffix == ZIPPED:
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)
        return
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
