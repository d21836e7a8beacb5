"""What the replays of a raw table did, as the table itself says it, beside landing's own entry, which they leave alone.

The entry stands in the table's properties, written in the commit that puts the rows in place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

from pyiceberg.table import Table

from headrace.iceberg.ledgers.landing import is_rolled_back

KEY = "headrace.replay"


@dataclass(frozen=True)
class Window:
    """Kafka's timestamps from `since` (included) to `until` (excluded); None has no end."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Settlement:
    """What the quarantine shall have of a stream: of its rows up to a checkpoint and within a window, those of `files`.

    Rows of checkpoints before `first_checkpoint` are left alone: they come from an earlier topic.
    """

    checkpoint_id: int
    window: Window
    files: tuple[str, ...] = ()
    first_checkpoint: int = 0


@dataclass(frozen=True)
class ReplayLedger:
    """The newest replay of a raw table.

    `count` is how many replays changed rows, for those who read the table; a rollback past one of them counts too. `recovered`
    is how many rows more left the quarantine than came into it. `settlement` is None where the quarantine stays as it is.
    """

    count: int = 0
    replay_id: str = ""
    recovered: int = 0
    settlement: Settlement | None = None
    snapshot_id: int = 0
    sequence_number: int = 0

    def to_json(self) -> str:
        values = asdict(self)
        if self.settlement is not None:
            window = self.settlement.window
            values["settlement"]["window"] = [_micros(window.since), _micros(window.until)]
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ReplayLedger:
        values = json.loads(text)
        told = values["settlement"]
        if told is not None:
            since, until = (_moment(each) for each in told["window"])
            first = told.get("first_checkpoint", 0)
            values["settlement"] = Settlement(told["checkpoint_id"], Window(since, until), tuple(told["files"]), first)
        return ReplayLedger(**values)


def read_replay(table: Table) -> ReplayLedger:
    """Return the table's newest entry, or an empty one for a table that was never replayed.

    Where the table was rolled back to before the replay, its readers have to notice that, and the quarantine stays as it is.
    """
    text = table.properties.get(KEY)
    if text is None:
        return ReplayLedger()
    newest = ReplayLedger.from_json(text)
    if not is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number):
        return newest
    return replace(newest, count=newest.count + 1, settlement=None)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def _moment(micros: int | None) -> datetime | None:
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest)
