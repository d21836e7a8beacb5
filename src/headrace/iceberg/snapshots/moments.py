"""The moment as of which a query reads its tables: a time or a snapshot id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from headrace.errors import BadQueryError

_EXAMPLES = (
    "Write a time such as 2026-11-20T09:30, a date such as 2026-11-20, or a snapshot id. A time without offset is in UTC."
)


@dataclass(frozen=True)
class Instant:
    """A time, in milliseconds since 1970 in UTC, as snapshots have it."""

    at_ms: int

    def __str__(self) -> str:
        return show_time(self.at_ms)


@dataclass(frozen=True)
class SnapshotId:
    """The id of a snapshot, which belongs to one table."""

    value: int


Moment = Instant | SnapshotId


def parse_moment(at: str | datetime | int) -> Moment:
    """Return the moment of a text, a datetime (in UTC if it has no offset) or a snapshot id. A date is its first instant.

    Raises a BadQueryError for an unreadable text.
    """
    if isinstance(at, datetime):
        return _instant(at)
    if isinstance(at, int):
        return SnapshotId(at)
    text = at.strip()
    if text.isascii() and text.isdigit():
        return SnapshotId(int(text))
    try:
        # Python 3.10 reads no Z.
        return _instant(datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text))
    except ValueError:
        raise BadQueryError(f'"{at}" is neither a time nor a snapshot id', where="--at", next_step=_EXAMPLES) from None


def show_time(at_ms: int) -> str:
    """Return a snapshot's time as text that `parse_moment` reads back."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _instant(at: datetime) -> Instant:
    moment = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return Instant((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)
