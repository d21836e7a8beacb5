"""Speed: how fast, and at what cost, each side lands a topic that is already full.

Both applications run at the same time and take turns; while one is measured the other waits. Before every measured turn the
application lands a smaller topic, so that the JVM has compiled its code and Python workers live.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.bench import Bench, Topic
from benchmarks.competitor import Competitor
from benchmarks.meter import measure
from benchmarks.results import Bar, at_least
from benchmarks.side import Order, SideName
from benchmarks.streams import Kind

RUNS = 3
_FIRST_WARM_UPS = 2


@dataclass(frozen=True)
class Case:
    """A topic to land, and how many times faster than plain Spark Headrace must be (per second, per CPU-second)."""

    name: str
    kind: Kind
    events: int
    warm_up_events: int
    bars: tuple[float, float]
    bad_every: int = 0


CASES = (
    Case("JSON", "charges", 1_000_000, 200_000, (1.8, 1.6)),
    Case("Avro", "lineage", 5_000_000, 500_000, (2.0, 2.0)),
    Case("JSON, 1 % bad", "charges", 1_000_000, 200_000, (1.4, 1.4), bad_every=100),
)


@dataclass(frozen=True)
class Turn:
    """One measured landing of one side."""

    side: SideName
    seconds: float
    cpu_seconds: float
    peak_mb: float
    events: int
    rows: int

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.events / self.cpu_seconds


@dataclass(frozen=True)
class Comparison:
    """All turns of one case."""

    case: Case
    turns: tuple[Turn, ...]

    def per_second(self, side: SideName) -> float:
        return median(turn.per_second for turn in self.turns if turn.side == side)

    def per_cpu_second(self, side: SideName) -> float:
        return median(turn.per_cpu_second for turn in self.turns if turn.side == side)

    def peak_mb(self, side: SideName) -> float:
        return max(turn.peak_mb for turn in self.turns if turn.side == side)

    def bars(self) -> tuple[Bar, ...]:
        per_second = self.per_second("headrace") / self.per_second("plain")
        per_cpu = self.per_cpu_second("headrace") / self.per_cpu_second("plain")
        return (
            at_least(self.case.bars[0], per_second, name=f"{self.case.name}: records per second against plain Spark"),
            at_least(self.case.bars[1], per_cpu, name=f"{self.case.name}: records per CPU-second against plain Spark"),
        )


def compare(bench: Bench, case: Case) -> Comparison:
    """Return the turns of one case, the sides alternating. A side that did not land every event is an error."""
    topic = Topic(case.kind, bench.scaled(case.events), case.bad_every)
    warm_up = Topic(case.kind, bench.scaled(case.warm_up_events), case.bad_every)
    bench.fill(warm_up)
    bench.fill(topic)
    turns: list[Turn] = []
    with bench.start("headrace") as headrace, bench.start("plain") as plain:
        for run in range(RUNS):
            for side in (headrace, plain):
                for again in range(_FIRST_WARM_UPS if run == 0 else 1):
                    _land(side, warm_up, table=f"warm_{run}_{again}")
                turn = _take_turn(side, topic, table=f"landed_{run}")
                bench.say(
                    f"{case.name}: {turn.side} {turn.per_second:,.0f} records/s, {turn.per_cpu_second:,.0f} per CPU-second"
                )
                turns.append(turn)
    return Comparison(case, tuple(turns))


def _take_turn(side: Competitor, topic: Topic, *, table: str) -> Turn:
    with measure(side.pid) as reading:
        side.land(_order(topic, table))
    rows = side.count(table)
    bad = topic.events // topic.bad_every if topic.bad_every else 0
    wanted = topic.events - bad if side.start.side == "headrace" else topic.events
    if rows != wanted:
        raise RuntimeError(f"{side.start.side} landed {rows} rows of {topic.name}, and {wanted} were to land")
    if bad and side.start.side == "headrace" and side.count_quarantined(f"bench.{table}") != bad:
        raise RuntimeError(f"not all of the {bad} bad events of {topic.name} are in the quarantine")
    side.drop_data(table)
    return Turn(side.start.side, reading.seconds, reading.cpu_seconds, reading.peak_bytes / 1e6, topic.events, rows)


def _land(side: Competitor, topic: Topic, *, table: str) -> None:
    side.land(_order(topic, table))
    side.drop_data(table)


def _order(topic: Topic, table: str) -> Order:
    return Order(topic.kind, {topic.name: table}, topic.partitions)
