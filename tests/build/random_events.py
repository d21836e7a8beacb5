"""Random events of two streams: late, repeated, changed and deleted ones, with ties and nulls, in batches of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.build.layer_lake import START
from tests.build.random_queries import GROUPS

_MAILS = (None, "a@b.org", "A@b.org", "a+x@b.org", "c@d.org", "e@f.org", "nonsense")
_LARGE = 0.06
"""The share of batches that have dozens of events."""


@dataclass(frozen=True)
class Landed:
    """An event of a stream, as a row of its raw table."""

    stream: str
    values: Mapping[str, Any]

    def row(self) -> dict[str, Any]:
        return dict(self.values)


@dataclass
class Traffic:
    """Generates events: `n`th versions of `keys` keys. Events with the same `id` or `lsn` are redeliveries."""

    random: Random
    keys: int
    sent: dict[str, list[Landed]] = field(default_factory=lambda: {"events": [], "changes": []})
    grown: set[str] = field(default_factory=set)
    _number: int = 0

    def batch(self) -> list[Landed]:
        """Return the events of one round: mostly a few, sometimes dozens."""
        large = self.random.random() < _LARGE
        count = self.random.randint(40, 80) if large else self.random.randint(1, 5)
        return [self._next() for _ in range(count)]

    def _next(self) -> Landed:
        stream = self.random.choice(("events", "events", "changes"))
        earlier = self.sent[stream]
        if earlier and self.random.random() < 0.12:
            return self.random.choice(earlier)
        self._number += 1
        event = Landed(stream, self._event() if stream == "events" else self._change())
        earlier.append(event)
        return event

    def _event(self) -> dict[str, Any]:
        random = self.random
        group = random.choice((*GROUPS, None))
        values = {
            "id": f"e{self._number}",
            "k": f"k{random.randrange(self.keys)}",
            "g": group,
            "n": self._version(),
            "amount": None if random.random() < 0.1 else Decimal(random.randrange(-2_000, 10_000)) / 100,
            "op": random.choice("uuuud"),
            "at": None if random.random() < 0.04 else START + timedelta(minutes=random.randrange(4 * 24 * 60)),
            "mail": random.choice(_MAILS),
            "tags": [("g", group or "")],
        }
        return {**values, "note": random.choice(("a", "b", None))} if "events" in self.grown else values

    def _change(self) -> dict[str, Any]:
        random = self.random
        lsn = self._number if random.random() < 0.7 else -self._number  # the latter are late
        if random.random() < 0.03:
            return {"before": None, "after": None, "source": {"lsn": lsn}, "op": "t"}
        after: dict[str, Any] = {
            "k": f"k{random.randrange(self.keys)}",
            "g": random.choice((*GROUPS, None)),
            "size": random.choice((None, *range(5))),
            "unchanged": None,
        }
        if "changes" in self.grown:
            after |= {"note": random.choice(("a", "b", None)), "size": random.choice((None, 3, 2**40))}
        if random.random() < 0.2:
            omitted = random.sample(["g", "size"], random.randint(1, 2))
            after |= {**dict.fromkeys(omitted), "unchanged": omitted}
        return {"before": None, "after": after, "source": {"lsn": lsn}, "op": random.choice("uuuud")}

    def _version(self) -> int:
        """Return a number that is mostly newer than those before, sometimes late, sometimes one that another event has."""
        if self.random.random() < 0.3:
            return self.random.randrange(self._number)
        return self._number + self.random.randrange(3)
