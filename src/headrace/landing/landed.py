"""The state of a stream while it lands, and the result of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from headrace.errors import HeadraceError, LandingError
from headrace.iceberg.ledgers.landing import Ledger
from headrace.landing.failures import StreamFailure
from headrace.landing.places import Places
from headrace.spec.model.pipeline import Stream


@dataclass
class LandingStream:
    """The state of a stream while it lands: its table as last read, and why it stopped, if it did.

    `stopped` needs a decision by the user; `failure` is retried. `unsure` are the writers of commits whose response was lost:
    each commit may have succeeded, or may still succeed, until a later commit gets its response.
    """

    stream: Stream
    label: str
    table: Table
    places: Places
    ledger: Ledger
    stopped: LandingError | None = None
    failure: StreamFailure | None = None
    unsure: tuple[str, ...] = ()

    @property
    def reason(self) -> HeadraceError | None:
        """Why the stream does not land."""
        return self.stopped or (self.failure.error if self.failure else None)


@dataclass(frozen=True)
class Landed:
    """The result of one batch for one stream."""

    label: str
    checkpoint_id: int
    rows: int
    bad: int


@dataclass(frozen=True)
class Batch:
    """One batch: what it landed, its duration, and the number of messages left for the next batch (`behind`).

    `notes` report new and widened columns, and why messages were refused.
    """

    landed: tuple[Landed, ...]
    seconds: float
    behind: int
    notes: tuple[str, ...] = ()
