"""The place where a benchmark runs: a folder that is removed afterwards, and a broker that belongs to neither side."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.competitor import Competitor
from benchmarks.events import charges, lineage_events
from benchmarks.side import SideName, Start
from benchmarks.streams import Kind
from benchmarks.topics import fill_topic
from headrace.servers.kafka import kafka, running_kafka
from headrace.settings import load_settings

_FOLDER = Path(".headrace") / "bench"
_SEED = 20260301
PARTITIONS: dict[Kind, int] = {"charges": 4, "lineage": 10}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Topic:
    """A topic that is filled once: what it holds, how much of it, and how many events come between two bad ones (0: none)."""

    kind: Kind
    events: int
    bad_every: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.events}" + (f"-bad-{self.bad_every}" if self.bad_every else "")

    @property
    def partitions(self) -> int:
        return PARTITIONS[self.kind]


@dataclass
class Bench:
    """What the benchmarks share: the broker, the folder, and how much to do. `rate` is the rate of `mart`, if one was given."""

    bootstrap_servers: str
    broker_pid: int
    folder: Path
    quick: bool
    say: Say
    rate: int | None = None
    _filled: set[str] = field(default_factory=set)
    _homes: int = 0

    def scaled(self, events: int) -> int:
        return events // 10 if self.quick else events

    def fill(self, topic: Topic) -> str:
        """Return the topic's name; fills it unless that has been done."""
        if topic.name not in self._filled:
            self.say(f"Filling {topic.name}")
            if topic.kind == "charges":
                events = charges(topic.events, seed=_SEED, bad_every=topic.bad_every)
            else:
                events = lineage_events(topic.events, seed=_SEED)
            fill_topic(self.bootstrap_servers, topic.name, events, partitions=topic.partitions)
            self._filled.add(topic.name)
        return topic.name

    def start(self, side: SideName) -> Competitor:
        """Return a new application of one side, with a catalog and a warehouse of its own."""
        return Competitor(Start(side, str(self.new_home(side)), self.bootstrap_servers))

    def new_home(self, name: str) -> Path:
        """Return a folder that nothing else uses."""
        self._homes += 1
        return (self.folder / f"{name}-{self._homes}").resolve()


@contextmanager
def open_bench(*, quick: bool, say: Say, rate: int | None = None) -> Iterator[Bench]:
    """Yield the place to run in. After an error the folder stays: the sides' logs are in it."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    settings = load_settings(flags={"home": str(_FOLDER / "broker")}, environ={}, folder=Path.cwd())
    with kafka(settings, report=say) as servers:
        broker = running_kafka(settings)
        assert broker
        yield Bench(str(servers), broker.pid, _FOLDER, quick, say, rate)
    shutil.rmtree(_FOLDER, ignore_errors=True)
