"""Streams while they are landed, and what a batch did to them."""

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
    """A stream while it is landed: its table as it was last seen, and why it stopped, if it did.

    `stopped` is what needs a decision, `failure` what is tried again. `unsure` are the writers of commits whose answers never
    came: each may have come through, or may yet, until the next one is answered.
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
    """What one batch did to one stream."""

    label: str
    checkpoint_id: int
    rows: int
    bad: int


@dataclass(frozen=True)
class Batch:
    """One batch: what it landed, how long it took, and how many messages were left for the next.

    `notes` say which tables have grown, and which messages no table can hold.
    """

    landed: tuple[Landed, ...]
    seconds: float
    behind: int
    notes: tuple[str, ...] = ()
