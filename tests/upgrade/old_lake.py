"""Unpacks the lake of version 0.1 for a test."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ARCHIVE = Path(__file__).with_name("lake-0.1.tar.xz")
PIPELINES = Path(__file__).with_name("pipelines")
ROUNDS = 3
"""How many rounds of messages the lake has landed and built."""

FOLDER = Path("/tmp/headrace-0.1-lake")
"""Iceberg's metadata, manifests and position deletes have absolute paths, so the lake is unpacked where it was made."""

_LOCK = Path("/tmp/headrace-0.1-lake.lock")
_SECONDS = 600.0


@contextmanager
def unpacked_lake() -> Iterator[Path]:
    """Yield a folder with the lake and its pipeline, which no other process uses in the meantime."""
    from headrace.file_locks import locked  # `make_lake.py` imports this module with the sources of 0.1, which lack it

    with locked(_LOCK, timeout=_SECONDS):
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            with tarfile.open(ARCHIVE) as archive:
                archive.extractall(FOLDER, filter="data")
            shutil.copytree(PIPELINES, FOLDER / "pipelines")
            yield FOLDER
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)
