"""The folders of partitions."""

from __future__ import annotations

import hashlib
from datetime import date, datetime, timedelta, timezone
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record

_LONGEST_FOLDER = 200  # ASCII characters: file systems allow 255 bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def partition_path(spec: PartitionSpec, schema: Schema, partition: Record) -> str:
    """Return a partition's folder: `year=/month=/day=/hour=` for a time, Iceberg's own path for other values."""
    if not spec.fields:
        return ""
    if len(spec.fields) == 1 and partition[0] is not None:
        path = _time_path(spec.fields[0].transform, partition[0])
        if path:
            return path
    return "/".join(_short(part) for part in spec.partition_to_path(partition, schema).split("/"))


def _short(folder: str) -> str:
    """Return a folder's name. The end of a name too long for a disk becomes a hash: Iceberg has the value in its metadata."""
    if len(folder) <= _LONGEST_FOLDER:
        return folder
    digest = hashlib.sha256(folder.encode()).hexdigest()[:16]
    return f"{folder[: _LONGEST_FOLDER - len(digest) - 1]}-{digest}"


def _time_path(transform: object, value: Any) -> str:
    if isinstance(transform, HourTransform):
        moment = _EPOCH + timedelta(hours=value)
        return f"{_day_path(moment)}/hour={moment.hour:02d}"
    if isinstance(transform, DayTransform):
        return _day_path(value if isinstance(value, date) else _EPOCH + timedelta(days=value))
    if isinstance(transform, MonthTransform):
        return f"year={1970 + value // 12:04d}/month={value % 12 + 1:02d}"
    if isinstance(transform, YearTransform):
        return f"year={1970 + value:04d}"
    return ""


def _day_path(moment: date) -> str:
    return f"year={moment.year:04d}/month={moment.month:02d}/day={moment.day:02d}"
