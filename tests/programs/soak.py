"""Lands for some minutes while parts are killed at random, then holds the lake against the topic: `make soak MINUTES=10`."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import psutil

from headrace.kafka.client import KafkaServers
from headrace.operations.verify.inspection import commits_of, verify
from headrace.servers.kafka import running_kafka, start_kafka, stop_kafka
from headrace.settings import Settings, load_settings
from headrace.sources.generate import Rate, generate
from headrace.spec import Pipeline, load_pipeline
from tests.support.application import Application, start_headrace

EVENTS_PER_SECOND = 300
LONGEST_PAUSE_SECONDS = 12.0


def soak(minutes: float, *, folder: Path, seed: int) -> bool:
    """Return whether nothing was lost, nothing doubled, and no application ended that was not killed."""
    chance = random.Random(seed)
    environ = {"HEADRACE_HOME": str(folder / ".headrace")}
    settings = load_settings(flags={}, environ=environ, folder=folder)
    pipeline = load_pipeline("lineage", environ={}, folder=folder)
    servers = start_kafka(settings, detached=True, report=print).bootstrap_servers
    stop, sent, kills = Event(), [0], {"application": 0, "worker": 0, "broker": 0}
    ended_alone: list[str] = []
    producer = Thread(target=_produce, args=(pipeline, servers, stop, sent))
    producer.start()
    application = _start(environ, folder)
    ends = time.monotonic() + minutes * 60
    while time.monotonic() < ends:
        time.sleep(chance.uniform(1.0, LONGEST_PAUSE_SECONDS))
        if application.process.poll() is not None:
            ended_alone.append(application.said()[-2_000:])
            application = _start(environ, folder)
            continue
        part = chance.choices(["application", "worker", "broker"], [6, 3, 1])[0]
        if _kill(part, application, settings):
            kills[part] += 1
        if part == "broker":
            start_kafka(settings, detached=True, report=lambda sentence: None)
        if part == "application":
            application.end()
            application = _start(environ, folder)
    produced_to_the_end = producer.is_alive()
    stop.set()
    producer.join()
    application.end()
    ended = _start(environ, folder, "land", "lineage", "--once")
    assert ended.wait(seconds=600) == 0, ended.said()
    holds = _report(settings, pipeline, servers, sent[0], kills)
    stop_kafka(settings)
    for said in ended_alone:
        print(f"an application that nobody killed ended, and said:\n{said}")
    return holds and not ended_alone and produced_to_the_end


def _start(environ: dict[str, str], folder: Path, *arguments: str) -> Application:
    return start_headrace(*(arguments or ("run", "lineage")), environ=environ, folder=folder)


def _kill(part: str, application: Application, settings: Settings) -> bool:
    """Send SIGKILL to one process of that part; says whether there was one."""
    if part == "broker":
        service = running_kafka(settings)
        pids = [service.pid] if service else []
    elif part == "application":
        pids = [application.pid] if application.process.poll() is None else []
    else:
        pids = _workers(application)
    for pid in pids[:1]:
        psutil.Process(pid).send_signal(signal.SIGKILL)
    return bool(pids)


def _workers(application: Application) -> list[int]:
    try:
        children = psutil.Process(application.pid).children(recursive=True)
        return [child.pid for child in children if child.parent() and "worker_daemon" in " ".join(child.parent().cmdline())]  # type: ignore[union-attr]
    except psutil.Error:
        return []


def _produce(pipeline: Pipeline, servers: str, stop: Event, sent: list[int]) -> None:
    stream = pipeline.streams[0]
    while not stop.is_set():
        rate = Rate(per_second=EVENTS_PER_SECOND, count=EVENTS_PER_SECOND * 5)
        sent[0] += generate(stream, rate, bootstrap_servers=KafkaServers(servers), stop=stop)


def _report(settings: Settings, pipeline: Pipeline, servers: str, sent: int, kills: dict[str, int]) -> bool:
    verified = verify(settings, pipeline, bootstrap_servers=KafkaServers(servers))[0]
    files = commits_of(settings, pipeline, checkpoint_id=None)
    orphans = sum(file.state == "orphan" for file in files)
    print(f"killed: {kills['application']} applications, {kills['worker']} workers, {kills['broker']} brokers")
    print(
        f"sent {sent:,}, in the topic {verified.in_topic:,}, landed {verified.landed:,}, bad {verified.quarantined:,}, "
        f"missing {verified.missing}, doubled {verified.doubled}, unlogged {verified.unlogged}; "
        f"{len(files)} files, {orphans} of them orphans of attempts that died"
    )
    return verified.holds and not verified.waiting and verified.in_topic >= sent and verified.landed >= verified.in_topic > 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        holds = soak(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, folder=Path(scratch), seed=int(time.time()))
    print("nothing is missing, nothing is doubled" if holds else "THE SOAK FAILED: see above")
    sys.exit(0 if holds else 1)
