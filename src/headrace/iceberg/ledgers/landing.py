"""The landing ledger: how far a stream has been read, recorded in its raw table.

The entry is in the summary of the snapshot that it describes and, in the same transaction, in the table's properties:
compaction's snapshots have no entry in their summary, and expiry removes old snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.errors import LandingError

KEY = "headrace.ledger"


@dataclass(frozen=True)
class Ledger:
    """The next offset of every partition after checkpoint `checkpoint_id`.

    `writer` is unique to the attempt that wrote the entry, so that an attempt can tell after a lost response whether its commit
    took effect. `quarantine_files` are the files of rejected rows of this checkpoint. `rollbacks` counts the table's rollbacks,
    and `erasures` its erasures, for downstream tables. `seconds` is the duration of the checkpoint, from its plan to its
    commit.

    `topic_id` and `cluster_id` identify the Kafka topic that the offsets belong to; they are empty in entries of earlier
    versions, or if the broker doesn't report them. `topic_starts` are the checkpoints at which landing started over with a new
    topic: offsets are unique among the rows between two of them.
    """

    checkpoint_id: int = 0
    offsets: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    writer: str = ""
    quarantined: int = 0
    extras: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gaps: tuple[tuple[int, int, int], ...] = ()
    quarantine_files: tuple[str, ...] = ()
    snapshot_id: int = 0
    sequence_number: int = 0
    rollbacks: int = 0
    erasures: int = 0
    seconds: float = 0.0
    topic_id: str = ""
    cluster_id: str = ""
    topic_starts: tuple[int, ...] = ()

    @property
    def first_checkpoint(self) -> int:
        """The first checkpoint of the current topic; rows of earlier checkpoints come from earlier topics."""
        return self.topic_starts[-1] if self.topic_starts else 0

    def to_json(self) -> str:
        return json.dumps(
            {
                "checkpoint_id": self.checkpoint_id,
                "offsets": {str(partition): offset for partition, offset in sorted(self.offsets.items())},
                "writer": self.writer,
                "quarantined": self.quarantined,
                "extras": dict(self.extras),
                "gaps": [list(gap) for gap in self.gaps],
                "quarantine_files": list(self.quarantine_files),
                "snapshot_id": self.snapshot_id,
                "sequence_number": self.sequence_number,
                "rollbacks": self.rollbacks,
                "erasures": self.erasures,
                "seconds": round(self.seconds, 3),
                "topic_id": self.topic_id,
                "cluster_id": self.cluster_id,
                "topic_starts": list(self.topic_starts),
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str) -> Ledger:
        entry = json.loads(text)
        return Ledger(
            checkpoint_id=entry["checkpoint_id"],
            offsets=MappingProxyType({int(partition): offset for partition, offset in entry["offsets"].items()}),
            writer=entry["writer"],
            quarantined=entry["quarantined"],
            extras=MappingProxyType(entry["extras"]),
            gaps=tuple((partition, start, end) for partition, start, end in entry["gaps"]),
            quarantine_files=tuple(entry["quarantine_files"]),
            snapshot_id=entry["snapshot_id"],
            sequence_number=entry["sequence_number"],
            rollbacks=entry.get("rollbacks", 0),
            erasures=entry.get("erasures", 0),
            seconds=entry.get("seconds", 0.0),
            topic_id=entry.get("topic_id", ""),
            cluster_id=entry.get("cluster_id", ""),
            topic_starts=tuple(entry.get("topic_starts", ())),
        )


def read_ledger(table: Table) -> Ledger:
    """Return the table's newest entry, or an empty one for a table without landed rows.

    After a rollback it is the entry of the current snapshot, with the newest checkpoint number: the removed rows are landed
    again, and no checkpoint number is used twice.
    """
    if KEY not in table.properties:
        return Ledger()
    newest = Ledger.from_json(table.properties[KEY])
    if not is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number):
        return newest
    recorded = find_entry(table, KEY)
    entry = Ledger.from_json(recorded[1]) if recorded else Ledger()
    if entry.checkpoint_id and not entry.topic_id and entry.topic_starts == newest.topic_starts:  # an entry without topic ids
        entry = replace(entry, topic_id=newest.topic_id, cluster_id=newest.cluster_id)
    # Rows rejected before this entry are in the quarantine already, and later ones are read again.
    return replace(
        entry,
        checkpoint_id=newest.checkpoint_id,
        writer=newest.writer,
        quarantined=newest.quarantined,
        quarantine_files=(),
        rollbacks=newest.rollbacks + 1,
        erasures=newest.erasures,
    )


def offsets_label(label: str, first_checkpoint: int) -> str:
    """Return the name under which a stream's offsets are recorded outside of its table.

    It is the stream's label for its first topic, and has the topic's first checkpoint for later topics.
    """
    return f"{label}@{first_checkpoint}" if first_checkpoint else label


def was_rolled_back(table: Table) -> bool:
    """Return whether the table's current snapshot is older than its newest entry."""
    if KEY not in table.properties:
        return False
    newest = Ledger.from_json(table.properties[KEY])
    return is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number)


def is_rolled_back(table: Table, *, snapshot_id: int, sequence_number: int) -> bool:
    """Return whether the table's current snapshot is older than an entry's snapshot; an id of 0 means no snapshot."""
    if not snapshot_id:
        return False
    current = table.current_snapshot()
    for snapshot in ancestors(table, current):
        if snapshot.snapshot_id == snapshot_id:
            return False
        if (snapshot.sequence_number or 0) <= sequence_number:
            return True
    return current is None  # otherwise the history ends after the entry, because older snapshots were expired


def find_entry(table: Table, key: str) -> tuple[Snapshot, str] | None:
    """Return the newest entry of the current snapshot and its ancestors, or None if no entry was ever recorded.

    Raises LandingError if the ancestors that could hold the entry are expired.
    """
    current = first = table.current_snapshot()
    for snapshot in ancestors(table, current):
        first = snapshot
        text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
        if text:
            return snapshot, text
    if current is not None and first is not None and first.sequence_number != 1:
        raise LandingError(
            f"the table was rolled back to snapshot {current.snapshot_id}, which has no ledger entry, and older snapshots are "
            "expired",
            where=".".join(table.name()),
            next_step=f"Roll it back to a snapshot whose summary has {key}, or land into a new table.",
        )
    return None


def ancestors(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, the newest first. Lazy: most callers need only the first."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
