"""What goes wrong on the way from a provider: how often, and how the whole stream of events is disturbed by it.

A problem has a name and a rate: the share of the events that can carry it which do. An event carries no mark of its problems;
each can be seen in the event itself (`problems_of` of its generator), or by what was sent before (`count_problems`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import count
from random import Random

from .providers import SPELLINGS

Event = dict[str, object]

COMMON = {"mixed_case_provider": 0.3, "duplicate": 0.01, "late": 0.02}
"""Problems of every stream. `duplicate` is the share of all events that are an earlier one, sent again."""

SETTLED = 20
"""The first events of a stream are on time: what is late is late by a few events, and has to come after what it refers to."""
KEPT = 50


class Problems:
    """Decides which problems strike."""

    def __init__(self, random: Random, known: Mapping[str, float], rates: Mapping[str, float]) -> None:
        self._random = random
        self._rates = {**known, **rates}

    def strike(self, name: str, *, among: float = 1.0) -> bool:
        """Return whether this one strikes. Where only a share of all events can have it (`among`), those do more often."""
        return self._random.random() * among < self._rates[name]

    def choose(self, options: tuple[str, ...]) -> str:
        return self._random.choice(options)

    def spell(self, provider: str) -> str:
        """Return the provider's name, in lower case unless `mixed_case_provider` strikes."""
        return self.choose(SPELLINGS[provider]) if self.strike("mixed_case_provider") else provider

    def pick_moment(self, moments: list[datetime]) -> datetime:
        return self._random.choice(moments)

    def pick_event(self, events: deque[Event]) -> Event:
        return self._random.choice(events)


def disturb(
    make: Callable[[int, datetime], Event],
    problems: Problems,
    *,
    now: Callable[[], datetime],
    start: int,
    latest: int,
    replaceable: Callable[[int], bool] = lambda number: True,
    share: float = 1.0,
) -> Iterator[Event]:
    """Yield events number `start`, `start + 1` and so on, some of them late, and some replaced by one sent before.

    A late event was made when another was that came up to `latest` events earlier, and a millisecond before that one. Only a
    `replaceable` event, which is a `share` of all, gives its place to a duplicate: nothing refers to those.
    """
    sent: deque[Event] = deque(maxlen=KEPT)
    on_time: deque[tuple[int, datetime]] = deque(maxlen=KEPT)
    for number in count(start):
        moment = now()
        if replaceable(number) and sent and problems.strike("duplicate", among=share):
            yield problems.pick_event(sent)
            continue
        late = number >= SETTLED and problems.strike("late")
        before = [at for earlier, at in on_time if number - latest <= earlier <= number - 2] if late else []
        if before:
            moment = problems.pick_moment(before) - timedelta(milliseconds=1)
        else:
            on_time.append((number, moment))
        event = make(number, moment)
        sent.append(event)
        yield event


def count_problems(events: Iterable[Event], problems_of: Callable[[Event], list[str]]) -> Counter[str]:
    """Return how many events, in the order in which they were sent, carry each problem."""
    counts: Counter[str] = Counter()
    seen: set[object] = set()
    newest = ""
    for event in events:
        counts.update(problems_of(event))
        created_at = str(event["created_at"])
        if event["event_id"] in seen:
            counts["duplicate"] += 1
        elif created_at < newest:
            counts["late"] += 1
        seen.add(event["event_id"])
        newest = max(newest, created_at)
    return counts


def problems_of_any(event: Event) -> list[str]:
    """Return the problems that events of every stream can carry."""
    return ["mixed_case_provider"] if str(event["provider"]) not in SPELLINGS else []


def text_of(moment: datetime) -> str:
    """Return the moment in ISO 8601, in UTC and with milliseconds."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
