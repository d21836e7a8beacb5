"""Load and run generators: imports, proportions, clocks, and pacing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count, islice
from pathlib import Path
from threading import Event as Flag

import pytest

from headrace.errors import SettingsError, SpecError, UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.sources import generate as generating
from headrace.sources.encode import Event
from headrace.sources.generate import FIRST_MOMENT, events_of
from headrace.sources.generators import Rate, check_problems, load_generator, read_problems
from headrace.spec.model.pipeline import Stream, TableName

NUMBERED = """
from .neighbour import NAME
PROBLEMS = {"late": 0.5}
def events(random, now, problems, start):
    number = start
    while True:
        yield {"name": NAME, "number": number, "drawn": random.random(), "at": now(), "problems": problems}
        number += 1
"""
PLAIN = "def events(random, now):\n    while True:\n        yield {'drawn': random.random(), 'at': now()}\n"


def stream(path: Path | None = None, *, name: str = "things", every: float = 0.5) -> Stream:
    return Stream(name, name, 1, "json", (), TableName("raw", name), generator=path, every_seconds=every)


def write(folder: Path, text: str, *, neighbour: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "things.py").write_text(text)
    if neighbour:
        (folder / "neighbour.py").write_text(f"NAME = {neighbour!r}\n")
    return folder / "things.py"


def first(source: Stream, rate: Rate, number: int = 3, *, start: int = 0) -> list[Event]:
    return list(islice(events_of(source, rate, start=start), number))


def test_load_generator_imports_neighbours_without_side_effects(tmp_path: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    ours = stream(write(tmp_path / "ours", NUMBERED, neighbour="ours"))
    other = stream(write(tmp_path / "theirs", NUMBERED, neighbour="theirs"))
    assert first(ours, Rate(seed=1))[0]["name"] == "ours"
    assert first(other, Rate(seed=1))[0]["name"] == "theirs"
    assert first(ours, Rate(seed=1))[0]["name"] == "ours"
    assert sys.path == path
    assert all(name.startswith("headrace_files_") for name in set(sys.modules) - modules)


@pytest.mark.parametrize("text", ["import nowhere\n", "from .nobody import x\n", "def event(): ...\n", "1 / 0\n"])
def test_load_generator_raises_on_a_broken_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match="can't load the generator") as caught:
        load_generator(stream(write(tmp_path, text)))
    assert caught.value.where == str(tmp_path / "things.py")
    (tmp_path / "things.py").write_text(PLAIN)
    assert not load_generator(stream(tmp_path / "things.py")).numbered


def test_load_generator_raises_for_a_stream_without_generator() -> None:
    with pytest.raises(SpecError, match='stream "things" has no generator'):
        load_generator(stream())


def test_generators_get_only_the_parameters_that_they_take(tmp_path: Path) -> None:
    numbered = stream(write(tmp_path, NUMBERED, neighbour="x"))
    event = first(numbered, Rate(seed=1, problems={"late": 0.1, "other": 0.2}), start=7)[0]
    assert (event["number"], event["problems"]) == (7, {"late": 0.1})
    assert load_generator(numbered).problems == {"late": 0.5}
    assert "drawn" in first(stream(write(tmp_path / "plain", PLAIN)), Rate(problems={"late": 1.0}))[0]


def test_numbered_generators_agree_without_a_seed(tmp_path: Path) -> None:
    numbered, plain = stream(write(tmp_path / "a", NUMBERED, neighbour="x")), stream(write(tmp_path / "b", PLAIN))
    assert [event["drawn"] for event in first(numbered, Rate())] == [event["drawn"] for event in first(numbered, Rate(seed=0))]
    assert [event["drawn"] for event in first(plain, Rate())] != [event["drawn"] for event in first(plain, Rate())]


@pytest.mark.parametrize(
    ("rate", "step"), [(Rate(seed=1), 0.5), (Rate(None, seed=1), 0.5), (Rate(4.0, seed=1), 0.25), (Rate(4, seed=1), 0.25)]
)
def test_seeded_events_have_a_simulated_clock(tmp_path: Path, rate: Rate, step: float) -> None:
    events = first(stream(write(tmp_path, PLAIN)), rate)
    assert [event["at"] for event in events] == [FIRST_MOMENT + timedelta(seconds=step * number) for number in (1, 2, 3)]


def test_unpaced_numbered_events_have_times_until_now(tmp_path: Path) -> None:
    numbered = stream(write(tmp_path, NUMBERED, neighbour="x"))
    moments = [event["at"] for event in first(numbered, Rate(None, count=100), 100)]
    assert all(isinstance(moment, datetime) for moment in moments)
    last, before = moments[-1], moments[0]
    assert isinstance(last, datetime)
    assert isinstance(before, datetime)
    assert last - before == timedelta(seconds=49.5)
    assert abs(datetime.now(timezone.utc) - last) < timedelta(seconds=30)


def test_rate_in_proportion_keeps_the_ratio_of_streams() -> None:
    streams = [stream(name=name, every=every) for name, every in (("a", 0.5), ("b", 2.0), ("c", 3.0))]

    def rates(rate: Rate) -> list[tuple[object, int | None]]:
        return [(own.per_second, own.count) for own in (rate.in_proportion(one, among=streams) for one in streams)]

    assert rates(Rate()) == [("own", None)] * 3
    assert rates(Rate(None, count=1000)) == [(None, 1000), (None, 250), (None, 166)]
    assert rates(Rate(12.0)) == [(12.0, None), (3.0, None), (2.0, None)]
    assert rates(Rate(count=1)) == [("own", 1)] * 3
    assert Rate(8.0).in_proportion(streams[1], among=streams[1:2]) == Rate(8.0)


def test_events_are_generated_when_due() -> None:
    started = time.monotonic()
    times: list[float] = []

    def events() -> Iterator[Event]:
        for number in count():
            times.append(time.monotonic() - started)
            yield {"number": number}

    sent = list(islice(generating._paced(events(), 0.05, started=started, stop=Flag()), 4))
    assert len(sent) == len(times) == 4
    assert all(at >= 0.05 * (number + 1) - 0.001 for number, at in enumerate(times))


def test_generate_stops_during_a_pause() -> None:
    stop = Flag()
    stop.set()
    assert list(generating._paced(iter([{}]), 60.0, started=time.monotonic(), stop=stop)) == []
    assert list(generating._paced(iter([{}]), None, started=0.0, stop=Flag())) == [{}]


def test_read_problems_parses_and_check_problems_validates(tmp_path: Path) -> None:
    numbered = stream(write(tmp_path, NUMBERED, neighbour="x"))
    assert read_problems(["late=0.25", "other=0"]) == {"late": 0.25, "other": 0.0}
    check_problems([numbered], {"late": 0.1})
    with pytest.raises(SettingsError) as caught:
        check_problems([numbered, replace(numbered, name="others")], {"lat": 0.1})
    assert caught.value.next_step == "Problems are: things: late; others: late."
    for written in ("late", "late=", "late=x", "late=-1", "late=1.1", "late=nan"):
        with pytest.raises(SettingsError):
            read_problems([written])


def test_generate_retries_a_topic_without_a_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(stream(), partitions=2)
    answers: list[dict[tuple[str, int], tuple[int, int]] | None] = [None, None, {("things", 0): (0, 4), ("things", 1): (2, 3)}]

    def list_bounds(admin: object, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        assert partitions == [("things", 0), ("things", 1)]
        answer = answers.pop(0)
        if answer is None:
            raise UnavailableError("Kafka does not answer: Broker: Not leader for partition")
        return answer

    monkeypatch.setattr(generating, "list_bounds", list_bounds)
    assert generating._count_events(source, KafkaServers("127.0.0.1:1")) == 7
    assert answers == []
