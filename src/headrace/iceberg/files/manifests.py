"""Query manifests with PyIceberg: live files, partitions, and which deletes apply to a data file."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.types import PrimitiveType, StructType

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The field ids of a position-delete file's columns in Iceberg's specification."""

_EPOCH = date(1970, 1, 1)


def live_files(manifests: Iterable[ManifestFile], io: FileIO) -> dict[str, DataFile]:
    """Return the live files in these manifests, by path."""
    return {entry.data_file.file_path: entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(io)}


def may_hold(manifest: ManifestFile, file: DataFile, partition_type: StructType) -> bool:
    """Return whether a manifest may list a file, judging by its partition spec and the bounds of its partitions."""
    if manifest.partition_spec_id != file.spec_id:
        return False
    for index, (summary, field) in enumerate(zip(manifest.partitions or (), partition_type.fields, strict=False)):
        value = file.partition[index]
        if value is None:
            if not summary.contains_null:
                return False
        elif not isinstance(value, float) and isinstance(field.field_type, PrimitiveType):  # NaN is within no bounds
            lower, upper = _bound(field.field_type, summary.lower_bound), _bound(field.field_type, summary.upper_bound)
            if lower is None or upper is None or not lower <= _stored(value) <= upper:
                return False
    return True


def target_of(deletes: DataFile) -> str | None:
    """Return the path of the only data file that a position-delete file applies to; None if it may apply to several."""
    if deletes.content != DataFileContent.POSITION_DELETES:
        return None
    lower, upper = (deletes.lower_bounds or {}).get(PATH_ID), (deletes.upper_bounds or {}).get(PATH_ID)
    return lower.decode() if lower is not None and lower == upper else None


def may_apply(deletes: DataFile, path: str, *, beside: DataFile) -> bool:
    """Return whether a delete file may delete rows of the data file at `path`, which has the partition of the file `beside`."""
    if deletes.content == DataFileContent.POSITION_DELETES:
        lower, upper = (deletes.lower_bounds or {}).get(PATH_ID), (deletes.upper_bounds or {}).get(PATH_ID)
        if lower is not None and lower == upper:
            return lower == path.encode()
    is_global = deletes.content == DataFileContent.EQUALITY_DELETES and not len(deletes.partition)
    return is_global or (deletes.spec_id, list(_values(deletes))) == (beside.spec_id, list(_values(beside)))


def _values(file: DataFile) -> Iterable[Any]:
    return (_stored(file.partition[index]) for index in range(len(file.partition)))


def _bound(kind: PrimitiveType, value: bytes | None) -> Any:
    return None if value is None else _stored(from_bytes(kind, value))


def _stored(value: Any) -> Any:
    """Return a partition's value as manifests store it: a date as a number of days."""
    return (value - _EPOCH).days if type(value) is date else value
