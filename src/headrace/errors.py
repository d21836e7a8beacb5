"""Every error that Headrace raises on purpose.

HeadraceError
├── SpecError              invalid pipeline: a file, its SQL or its YAML
├── SettingsError          invalid headrace.toml, environment variable or flag
├── ServiceError           an embedded server did not start, or died
├── LockedError            another application already runs this pipeline
├── LandingError           a stream can't go on without a decision
│   ├── GapError           Kafka has deleted offsets that were never landed
│   ├── TopicResetError    the topic was replaced since it was landed
│   └── TakenOverError     another application landed this stream since this one planned its batch
├── BuildError             a table can't be built
│   └── QualityError       rows failed an expectation that fails the build
├── ErasureError           a person can't be erased, or not without a decision
├── PublishError           Postgres rejected a published table
├── QueryError             a query can't be answered
│   └── BadQueryError      invalid query: its SQL, or a name in it
├── NotFoundError          not found: a table, a topic, a page
├── MissingLibraryError    an optional Python library is not installed
└── RetryableError         temporary: try again
    ├── UnavailableError   Kafka, Postgres, the catalog or the warehouse does not answer
    ├── BusyError          too many queries run at once
    ├── CompactedError     files that a build replaces were compacted since it planned
    └── OutdatedError      files were written so long ago that maintenance may have removed them

A RetryableError passes without a change by anyone: callers retry it with backoff. Every other error is permanent for its
caller: somebody has to change a file, a setting or a decision. An unexpected exception is none of these; it is chained
(`__cause__`) and logged with its traceback.
"""

from __future__ import annotations

__all__ = [
    "BadQueryError",
    "BuildError",
    "BusyError",
    "CompactedError",
    "ErasureError",
    "GapError",
    "HeadraceError",
    "LandingError",
    "LockedError",
    "MissingLibraryError",
    "NotFoundError",
    "OutdatedError",
    "PublishError",
    "QualityError",
    "QueryError",
    "RetryableError",
    "ServiceError",
    "SettingsError",
    "SpecError",
    "TakenOverError",
    "TopicResetError",
    "UnavailableError",
]


class HeadraceError(Exception):
    """A message in three parts: what is wrong, where, and what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where, next_step)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        first = f"{self.where}: {self.what}" if self.where else self.what
        return f"{first}\n{self.next_step}" if self.next_step else first

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the message, which says what to do next, instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class SpecError(HeadraceError):
    exit_code = 2


class SettingsError(HeadraceError):
    exit_code = 2


class ServiceError(HeadraceError):
    pass


class LockedError(HeadraceError):
    exit_code = 3


class LandingError(HeadraceError):
    pass


class GapError(LandingError):
    pass


class TopicResetError(LandingError):
    pass


class TakenOverError(LandingError):
    exit_code = 3


class BuildError(HeadraceError):
    pass


class QualityError(BuildError):
    """`results` are those of all expectations of the table, for the record."""

    def __init__(self, what: str, *, results: tuple[object, ...], where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.results = results


class ErasureError(HeadraceError):
    pass


class PublishError(HeadraceError):
    pass


class QueryError(HeadraceError):
    pass


class BadQueryError(QueryError):
    exit_code = 2


class NotFoundError(HeadraceError):
    pass


class MissingLibraryError(HeadraceError):
    pass


class RetryableError(HeadraceError):
    pass


class UnavailableError(RetryableError):
    pass


class BusyError(RetryableError):
    pass


class CompactedError(RetryableError):
    pass


class OutdatedError(RetryableError):
    pass
