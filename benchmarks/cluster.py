"""Cluster: landing on one worker and on two of one core each, with the servers of `headrace up --profile stack`.

One application stays for all turns; the second worker is started before its turn and stopped after it. Before every measured
turn the application lands a smaller topic, so that every executor and its Python worker are warm. What each part costs
meanwhile is told apart: on a small machine the servers need the cores that a second worker would have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.bench import Bench, Topic
from benchmarks.competitor import Competitor
from benchmarks.meter import read_busy, read_cpu
from benchmarks.results import Bar, at_least
from benchmarks.side import Order, Start
from benchmarks.streams import pipeline_of
from headrace.landing.places import places_of
from headrace.landing.verify import verify_stream
from headrace.services import embedded, object_store, postgres, rest_catalog, spark_cluster
from headrace.services.kafka_client import KafkaServers
from headrace.services.topics import admin_client
from headrace.settings import STACK, load_settings
from headrace.tables.catalog import open_catalog
from headrace.tables.quarantine import open_quarantine

PAIRS = 3
WANTED = 1.7
_EVENTS = 1_000_000
_WARM_UP_EVENTS = 200_000
_WARM_UPS = 2
_SERVERS = (postgres.SERVER, object_store.SERVER, rest_catalog.SERVER, spark_cluster.SERVER, spark_cluster.WORKERS[0])
_WORKERS = tuple(worker.name for worker in spark_cluster.WORKERS)
_DRIVER, _BROKER = "driver", "broker"


@dataclass(frozen=True)
class Turn:
    """One measured landing: on how many workers, and the CPU seconds of each part and of the whole machine meanwhile."""

    workers: int
    events: int
    seconds: float
    cpu: Mapping[str, float]
    busy: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def executors(self) -> tuple[float, ...]:
        return tuple(self.cpu[name] for name in _WORKERS[: self.workers])

    def to_row(self) -> dict[str, object]:
        parts = {name: round(seconds, 2) for name, seconds in self.cpu.items()}
        return {"seconds": round(self.seconds, 2), "cpu_seconds": parts, "cpu_seconds_of_others": round(self.others, 2)}

    @property
    def others(self) -> float:
        """CPU seconds of programs that have nothing to do with it."""
        return max(0.0, self.busy - sum(self.cpu.values()))


def compare_workers(bench: Bench) -> tuple[Sequence[Mapping[str, object]], tuple[Bar, ...]]:
    """Gives back what one worker and what two landed, and if two landed enough more. An event lost or doubled is an error."""
    topic, warm_up = (Topic("charges", bench.scaled(events)) for events in (_EVENTS, _WARM_UP_EVENTS))
    bench.fill(warm_up)
    bench.fill(topic)
    turns: list[Turn] = []
    start = Start("headrace", str(bench.new_home("cluster")), bench.bootstrap_servers, stack=True)
    settings = load_settings(flags={"profile": STACK, "home": start.home}, environ={}, folder=bench.folder)
    with ExitStack() as held:
        servers = [held.enter_context(embedded.use(server, settings, report=bench.say)) for server in _SERVERS]
        side = held.enter_context(Competitor(start))
        pids = {_DRIVER: side.pid, _BROKER: bench.broker_pid, **{server.name: server.pid for server in servers}}
        for workers in _order_of(PAIRS):
            with ExitStack() as added:
                there = dict(pids)
                for worker in spark_cluster.WORKERS[1:workers]:
                    there[worker.name] = added.enter_context(embedded.use(worker, settings, report=bench.say)).pid
                turn = _take_turn(side, topic, warm_up, pids=there, workers=workers, number=len(turns))
            bench.say(f"Cluster: {workers} workers {turn.per_second:,.0f} records/s; {turn.to_row()}")
            turns.append(turn)
    pairs = [{turn.workers: turn.per_second for turn in turns[at : at + 2]} for at in range(0, len(turns), 2)]
    ratio = median(pair[2] / pair[1] for pair in pairs)
    return [_row(workers, turns) for workers in (1, 2)], (
        at_least(WANTED, ratio, name="records per second with 2 workers of one core against 1"),
    )


def _order_of(pairs: int) -> list[int]:
    """Gives back how many workers each turn has: both in every pair, the first of a pair being the last of the one before."""
    return [workers for pair in range(pairs) for workers in ((1, 2) if pair % 2 == 0 else (2, 1))]


def _take_turn(side: Competitor, topic: Topic, warm_up: Topic, *, pids: Mapping[str, int], workers: int, number: int) -> Turn:
    for again in range(_WARM_UPS):
        side.land(_order(warm_up, f"warm_{number}_{again}", workers))
        side.drop_data(f"warm_{number}_{again}")
    table = f"landed_{number}"
    cpu, busy, started = read_cpu(pids), read_busy(), time.monotonic()
    side.land(_order(topic, table, workers))
    seconds, busy, after = time.monotonic() - started, read_busy() - busy, read_cpu(pids)
    _check(side, topic, table)
    side.drop_data(table)
    return Turn(workers, topic.events, seconds, {name: after[name] - cpu[name] for name in pids}, busy)


def _check(side: Competitor, topic: Topic, table: str) -> None:
    """Raises unless every message of the topic is in the table once."""
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
    own = [turn for turn in turns if turn.workers == workers]
    cores = os.cpu_count() or 1

    def middle(values: Sequence[float]) -> float:
        return round(median(values), 2)

    return {
        "workers": workers,
        "records_per_second": round(median(turn.per_second for turn in own)),
        "per_executor_core": round(median(turn.per_second / workers for turn in own)),
        "per_executor_cpu_second": round(median(turn.events / sum(turn.executors) for turn in own)),
        "executor_cores_used": middle([sum(turn.executors) / turn.seconds for turn in own]),
        "driver": middle([turn.cpu[_DRIVER] / turn.seconds for turn in own]),
        "broker": middle([turn.cpu[_BROKER] / turn.seconds for turn in own]),
        "object_store": middle([turn.cpu[object_store.NAME] / turn.seconds for turn in own]),
        "catalog": middle([(turn.cpu[rest_catalog.NAME] + turn.cpu[postgres.NAME]) / turn.seconds for turn in own]),
        "others": middle([turn.others / turn.seconds for turn in own]),
        "idle": middle([max(0.0, cores - turn.busy / turn.seconds) for turn in own]),
        "turns": [turn.to_row() for turn in own],
    }
