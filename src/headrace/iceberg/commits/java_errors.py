"""What an error of Iceberg's Java library means to a commit."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

_MOVED = "org.apache.iceberg.exceptions.ValidationException"
_CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"


def is_moved(error: BaseException) -> bool:
    """Return whether a commit was refused for good, because files that it replaces are gone or have got deletes since."""
    return _name(error) == _MOVED


def is_conflict(error: BaseException) -> bool:
    """Return whether another commit came first, and the same one may be tried again."""
    return _name(error) == _CONFLICT


def _name(error: BaseException) -> str:
    return str(error.java_exception.getClass().getName()) if isinstance(error, Py4JJavaError) else ""
