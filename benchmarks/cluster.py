"""Cluster: landing on one worker and on two of one core each, with the servers of `headrace up --profile stack`.

Every turn has an application of its own, which ends before a worker is stopped: Spark would start executors again on a worker
that is about to end. Before it is measured, the application lands a smaller topic, so that executors and their Python workers
are warm. Each part is measured separately: on a small machine the servers need the cores that a second worker would
have. How long executors were ready and had no core is known from the kernel; without that time, the turns are what they would
be on idle cores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.bench import Bench, Topic
from benchmarks.competitor import Competitor
from benchmarks.meter import read_busy, read_cpu, read_waiting
from benchmarks.results import Bar, at_least
from benchmarks.side import Order, Start
from benchmarks.streams import pipeline_of
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.metadata.quarantine import open_quarantine
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.places import places_of
from headrace.operations.verify.verify import verify_stream
from headrace.servers import embedded, object_store, postgres, rest_catalog, spark_cluster
from headrace.settings import STACK, load_settings

PAIRS = 3
WANTED = 1.7
_EVENTS = 1_000_000
_WARM_UP_EVENTS = 200_000
_WARM_UPS = 3
_SERVERS = (postgres.SERVER, object_store.SERVER, rest_catalog.SERVER, spark_cluster.SERVER, spark_cluster.WORKERS[0])
_WORKERS = tuple(worker.name for worker in spark_cluster.WORKERS)
_DRIVER, _BROKER = "driver", "broker"


@dataclass(frozen=True)
class Turn:
    """One measured landing: on how many workers, and the CPU seconds of each part and of the whole machine meanwhile.

    `waiting` are the seconds in which each part was ready and had no core.
    """

    workers: int
    events: int
    seconds: float
    cpu: Mapping[str, float]
    waiting: Mapping[str, float]
    busy: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def executors(self) -> tuple[float, ...]:
        return tuple(self.cpu[name] for name in _WORKERS[: self.workers])

    @property
    def held_up(self) -> float:
        """The seconds that landing took longer because executors had no core. It ends with the last of them."""
        return max(self.cpu[name] + self.waiting[name] for name in _WORKERS[: self.workers]) - max(self.executors)

    @property
    def per_second_on_idle_cores(self) -> float:
        return self.events / (self.seconds - self.held_up)

    @property
    def others(self) -> float:
        """CPU seconds of programs that have nothing to do with it."""
        return max(0.0, self.busy - sum(self.cpu.values()))

    def to_row(self) -> dict[str, object]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": {name: round(seconds, 2) for name, seconds in self.cpu.items()},
            "seconds_without_a_core": {name: round(self.waiting[name], 2) for name in _WORKERS[: self.workers]},
            "cpu_seconds_of_others": round(self.others, 2),
        }


def compare_workers(bench: Bench) -> tuple[Sequence[Mapping[str, object]], tuple[Bar, ...]]:
    """Return what one worker and what two landed, and if two landed enough more. An event lost or doubled is an error."""
    topic, warm_up = (Topic("charges", bench.scaled(events)) for events in (_EVENTS, _WARM_UP_EVENTS))
    bench.fill(warm_up)
    bench.fill(topic)
    turns: list[Turn] = []
    start = Start("headrace", str(bench.new_home("cluster")), bench.bootstrap_servers, stack=True)
    settings = load_settings(flags={"profile": STACK, "home": start.home}, environ={}, folder=bench.folder)
    with ExitStack() as held:
        servers = [held.enter_context(embedded.use(server, settings, report=bench.say)) for server in _SERVERS]
        for workers in _order_of(PAIRS):
            with ExitStack() as added:
                more = [
                    added.enter_context(embedded.use(worker, settings, report=bench.say))
                    for worker in spark_cluster.WORKERS[1:workers]
                ]
                side = added.enter_context(Competitor(start))  # it ends before its workers do
                pids = {
                    _DRIVER: side.pid,
                    _BROKER: bench.broker_pid,
                    **{server.name: server.pid for server in (*servers, *more)},
                }
                turn = _take_turn(side, topic, warm_up, pids=pids, workers=workers, number=len(turns))
            bench.say(f"Cluster: {workers} of 2 workers {turn.per_second:,.0f} records/s, held up for {turn.held_up:.1f} s")
            turns.append(turn)
    return [_row(workers, turns) for workers in (1, 2)], _bars(turns)


def _bars(turns: Sequence[Turn]) -> tuple[Bar, ...]:
    """Return how much more two workers landed, as the median of the pairs: by the clock, and on idle cores."""
    pairs = [sorted(turns[at : at + 2], key=lambda turn: turn.workers) for at in range(0, len(turns), 2)]
    by_clock = median(two.per_second / one.per_second for one, two in pairs)
    on_idle_cores = median(two.per_second_on_idle_cores / one.per_second_on_idle_cores for one, two in pairs)
    return (
        at_least(WANTED, by_clock, name="2 workers against 1: records per second by the clock"),
        at_least(WANTED, on_idle_cores, name="2 workers against 1: records per second on idle cores"),
    )


def _order_of(pairs: int) -> list[int]:
    """Return how many workers each turn has: both in every pair, the first of a pair being the last of the one before."""
    return [workers for pair in range(pairs) for workers in ((1, 2) if pair % 2 == 0 else (2, 1))]


def _take_turn(side: Competitor, topic: Topic, warm_up: Topic, *, pids: Mapping[str, int], workers: int, number: int) -> Turn:
    for again in range(_WARM_UPS):
        side.land(_order(warm_up, f"warm_{number}_{again}", workers))
        side.drop_data(f"warm_{number}_{again}")
    table = f"landed_{number}"
    cpu, waiting, busy, started = read_cpu(pids), read_waiting(pids), read_busy(), time.monotonic()
    side.land(_order(topic, table, workers))
    seconds, busy = time.monotonic() - started, read_busy() - busy
    cpu, waiting = _less(read_cpu(pids), cpu), _less(read_waiting(pids), waiting)
    _check(side, topic, table)
    side.drop_data(table)
    return Turn(workers, topic.events, seconds, cpu, waiting, busy)


def _less(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}


def _check(side: Competitor, topic: Topic, table: str) -> None:
    """Raise unless every message of the topic is in the table once."""
    settings = side.start.settings
    servers = KafkaServers(side.start.bootstrap_servers)
    stream = pipeline_of(topic.kind, {topic.name: table}, partitions=topic.partitions).streams[0]
    verified = verify_stream(
        f"bench.{table}",
        topic.name,
        table=side.table(table),
        quarantine=open_quarantine(open_catalog(settings), settings),
        commit_log=places_of(stream, settings).commit_log,
        admin=admin_client(servers),
        consumer=servers.task_config(),
    )
    if not verified.holds or verified.landed != topic.events:
        raise RuntimeError(f"{topic.name} was not landed as it should: {verified}")


def _order(topic: Topic, table: str, workers: int) -> Order:
    return Order(topic.kind, {topic.name: table}, topic.partitions, executors=workers)


def _row(workers: int, turns: Sequence[Turn]) -> dict[str, object]:
    """Return the medians of the turns with so many workers; what each part used is in cores."""
    own = [turn for turn in turns if turn.workers == workers]

    def cores(*names: str) -> float:
        return round(median(sum(turn.cpu[name] for name in names) / turn.seconds for turn in own), 2)

    return {
        "workers": workers,
        "records_per_second": round(median(turn.per_second for turn in own)),
        "per_executor_core": round(median(turn.per_second_on_idle_cores / workers for turn in own)),
        "per_executor_cpu_second": round(median(turn.events / sum(turn.executors) for turn in own)),
        "held_up": round(median(turn.held_up / turn.seconds for turn in own), 2),
        "executors": cores(*_WORKERS[:workers]),
        "driver": cores(_DRIVER),
        "broker": cores(_BROKER),
        "s3": cores(object_store.NAME),
        "catalog": cores(rest_catalog.NAME, postgres.NAME),
        "others": round(median(turn.others / turn.seconds for turn in own), 2),
        "turns": [turn.to_row() for turn in own],
    }
