"""Read manifests and manifest lists cheaply.

PyIceberg 0.12 parses, converts and resolves the schema in the header of every Avro file that it opens, which takes longer than
reading the entries of a small manifest. All manifests of a table have the same few schemas, so they are resolved once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from pyiceberg import manifest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import _SCHEMA_KEY, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import StructProtocol

from headrace.bounded_cache import BoundedCache

D = TypeVar("D", bound=StructProtocol)

_MANIFESTS = 5_000
"""How many entries of manifest lists are cached. Builds read a table's newest list, which has at most 24 data manifests and as
many delete manifests: this is enough for about a hundred lists."""

_lists: BoundedCache[str, tuple[ManifestFile, ...]] = BoundedCache(_MANIFESTS)
_readers: BoundedCache[tuple[object, ...], tuple[Schema, Reader]] = BoundedCache(1_024)


def manifests_of(snapshot: Snapshot, io: FileIO) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot. Manifest lists are immutable: each is read once, or never if this process wrote
    it."""
    use_resolved_schemas()
    return _lists.get_or_build(
        snapshot.manifest_list, lambda: tuple(snapshot.manifests(io)), weigh=lambda manifests: max(len(manifests), 1)
    )


def remember_manifests(manifest_list: str, manifests: Sequence[ManifestFile]) -> None:
    """Cache a manifest list that was just written: the next build that reads the table does not have to read the file."""
    _lists.put(manifest_list, tuple(manifests), weight=max(len(manifests), 1))


def use_resolved_schemas() -> None:
    """Make PyIceberg read manifests with cached resolved schemas. Idempotent."""
    manifest.AvroFile = ResolvedAvroFile  # type: ignore[attr-defined]


class ResolvedAvroFile(AvroFile[D]):
    """An Avro file whose schema is converted and resolved once for all files with the same schema."""

    def __enter__(self) -> ResolvedAvroFile[D]:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = self._read_header()
        written = self.header.meta.get(_SCHEMA_KEY, "")
        self.schema = _schema_of(written)
        wanted = self.read_schema = self.read_schema or self.schema
        # Read schemas are constants of PyIceberg. The cache holds a reference, so that no other object gets the same id.
        key = (written, id(wanted), tuple(self.read_types.items()), tuple(self.read_enums.items()))
        _, self.reader = _readers.get_or_build(
            key, lambda: (wanted, resolve_reader(self.schema, wanted, self.read_types, self.read_enums))
        )
        return self


@lru_cache(maxsize=1_024)
def _schema_of(text: str) -> Schema:
    return AvroFileHeader(b"", {_SCHEMA_KEY: text}, b"").get_schema()
