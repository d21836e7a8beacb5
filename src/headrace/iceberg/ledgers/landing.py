"""How far a stream has been read, as the table that holds what was read says it.

The entry stands in the summary of the snapshot that it describes and, written in the same transaction, in the table's
properties: compaction's snapshots carry no summary of ours, and expiry removes old ones.
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

    `writer` is unique to the attempt that wrote the entry, so that an attempt whose answer was lost finds out whether it
    came through. `quarantine_files` are the files of rejected rows that belong to this checkpoint. `rollbacks` counts how often
    the table was rolled back, and `erasures` how often rows were erased from it, for those who read it. `seconds` is how long
    the checkpoint took, from its plan to its commit.

    `topic_id` and `cluster_id` identify the Kafka topic that the offsets belong to; they are empty where no checkpoint was
    written since Headrace records them, or where the broker doesn't report them. `topic_starts` are the checkpoints at which
    landing started over with a new topic: offsets are unique among the rows between two of them.
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
        """The first checkpoint of the current topic; rows of earlier checkpoints were landed from earlier topics."""
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
    """Return the table's newest entry, or an empty one for a table that nothing has landed in yet.

    After a rollback the entry is the one of the snapshot that the table was rolled back to, under the checkpoint number of the
    newest: what the table no longer holds is landed again, and no checkpoint number is used twice.
    """
    if KEY not in table.properties:
        return Ledger()
    newest = Ledger.from_json(table.properties[KEY])
    if not is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number):
        return newest
    found = find_held(table, KEY)
    held = Ledger.from_json(found[1]) if found else Ledger()
    if held.checkpoint_id and not held.topic_id and held.topic_starts == newest.topic_starts:  # written before ids were kept
        held = replace(held, topic_id=newest.topic_id, cluster_id=newest.cluster_id)
    # What was refused up to there is in the quarantine, and what was refused later is read again.
    return replace(
        held,
        checkpoint_id=newest.checkpoint_id,
        writer=newest.writer,
        quarantined=newest.quarantined,
        quarantine_files=(),
        rollbacks=newest.rollbacks + 1,
        erasures=newest.erasures,
    )


def offsets_label(label: str, first_checkpoint: int) -> str:
    """Return the name under which offsets of a stream are recorded outside of its table, by its topic's first checkpoint.

    The offsets of a stream's first topic are recorded under the stream's own label.
    """
    return f"{label}@{first_checkpoint}" if first_checkpoint else label


def was_rolled_back(table: Table) -> bool:
    """Return whether the table's current snapshot is older than its newest entry."""
    if KEY not in table.properties:
        return False
    newest = Ledger.from_json(table.properties[KEY])
    return is_rolled_back(table, snapshot_id=newest.snapshot_id, sequence_number=newest.sequence_number)


def is_rolled_back(table: Table, *, snapshot_id: int, sequence_number: int) -> bool:
    """Return whether the table's current snapshot is older than this one, which an entry names; 0 stands for none."""
    if not snapshot_id:
        return False
    current = table.current_snapshot()
    for snapshot in ancestors(table, current):
        if snapshot.snapshot_id == snapshot_id:
            return False
        if (snapshot.sequence_number or 0) <= sequence_number:
            return True
    return current is None  # otherwise the way back ends above the entry, because snapshots were expired


def find_held(table: Table, key: str) -> tuple[Snapshot, str] | None:
    """Return the newest entry among the current snapshot and those that it comes from, or None where none was made.

    A LandingError where those that would say it are gone.
    """
    current = first = table.current_snapshot()
    for snapshot in ancestors(table, current):
        first = snapshot
        text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
        if text:
            return snapshot, text
    if current is not None and first is not None and first.sequence_number != 1:
        raise LandingError(
            f"the table was rolled back to snapshot {current.snapshot_id}, which does not say how far it was landed, and the "
            "snapshots before it are gone",
            where=".".join(table.name()),
            next_step=f"Roll it back to a snapshot of Headrace's (its summary has {key}), or land into a new table.",
        )
    return None


def ancestors(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, the newest first. Most callers need the first alone."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
