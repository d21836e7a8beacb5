"""Classify commit errors of Iceberg's Java library."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
_CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"


def is_validation_error(error: BaseException) -> bool:
    """Return whether a commit failed permanently: files that it replaces were removed or have new deletes."""
    return _name(error) == _VALIDATION


def is_conflict(error: BaseException) -> bool:
    """Return whether another commit came first, so that this one can be retried."""
    return _name(error) == _CONFLICT


def _name(error: BaseException) -> str:
    return str(error.java_exception.getClass().getName()) if isinstance(error, Py4JJavaError) else ""
