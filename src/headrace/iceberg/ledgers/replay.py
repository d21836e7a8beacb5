"""The replay ledger of a raw table: its newest replay, recorded in the table's properties.

The entry is written in the commit that replaces the rows. Landing's own entry stays unchanged.
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
    """A range of Kafka timestamps from `since` (inclusive) to `until` (exclusive); None is unbounded."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Settlement:
    """The stream's rows in the quarantine after a replay: up to a checkpoint and within a window, only the rows in `files`.

    Rows of checkpoints before `first_checkpoint` are unchanged: they come from an earlier topic.
    """

    checkpoint_id: int
    window: Window
    files: tuple[str, ...] = ()
    first_checkpoint: int = 0


@dataclass(frozen=True)
class ReplayLedger:
    """The newest replay of a raw table.

    `count` is the number of replays that changed rows, for downstream tables; a rollback past one of them counts too.
    `recovered` is the net number of rows that left the quarantine. `settlement` is None if the replay leaves the quarantine
    unchanged.
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
        entry = values["settlement"]
        if entry is not None:
            since, until = (_moment(bound) for bound in entry["window"])
            first = entry.get("first_checkpoint", 0)
            values["settlement"] = Settlement(entry["checkpoint_id"], Window(since, until), tuple(entry["files"]), first)
        return ReplayLedger(**values)


def read_replay(table: Table) -> ReplayLedger:
    """Return the table's newest entry, or an empty one for a table that was never replayed.

    After a rollback past the replay, the count is one higher, so that downstream tables are refreshed, and the quarantine stays
    unchanged.
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
