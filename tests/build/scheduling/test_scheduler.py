"""The scheduler's choice of the next build: by the age of changes, by dependencies, and by target lags."""

from __future__ import annotations

import random

import pytest

from headrace.build.scheduling.scheduler import MOST_BUILDS, Scheduler
from headrace.build.scheduling.table_state import Changes, ScheduledTable
from headrace.spec.model.pipeline import TableName


def name(word: str) -> TableName:
    return TableName("t", word)


def table(word: str, *followed: str, looks_up: str = "", lag: float | None = None) -> ScheduledTable:
    follows = frozenset(map(name, followed))
    return ScheduledTable(name(word), follows | frozenset(map(name, looks_up.split())), follows, lag)


class Clock:
    """A scheduler at a time that the test sets; tables were built before, unless `new` names them."""

    def __init__(self, *tables: ScheduledTable, new: str = "") -> None:
        self.now = 100.0
        self.scheduler = Scheduler(tables)
        for table in tables:
            if table.name.name not in new.split():
                self.scheduler.note_built(table.name)

    def land(self, source: str = "raw") -> None:
        self.scheduler.moved(name(source), Changes(self.now, self.now))

    def start(self) -> list[str]:
        """Return all tables that start now, in order."""
        started = []
        while (taken := self.scheduler.take(self.now)) is not None:
            self.scheduler.note_plan(taken, is_refresh=False)
            started.append(taken.name)
        return started

    def end(self, word: str, *, changed: bool = True, seconds: float | None = None, rest_since: float | None = None) -> None:
        self.scheduler.succeed(name(word), changed=changed, seconds=seconds, rest_since=rest_since)

    def fail(self, word: str) -> None:
        self.scheduler.fail(name(word), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_table_is_due_when_an_input_changes() -> None:
    clock = Clock(table("a", "raw"), table("b", "other"))
    assert clock.start() == []
    assert clock.scheduler.is_idle
    clock.land("raw")
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == []
    assert clock.scheduler.is_idle


def test_oldest_change_is_built_first() -> None:
    clock = Clock(table("a", "x"), table("b", "y"), table("c", "z"))
    for source in ("z", "y", "x"):
        clock.land(source)
        clock.wait(1)
    assert clock.start() == ["c", "b"], "there are two workers"
    clock.end("c")
    assert clock.start() == ["a"]


def test_upstream_is_built_before_downstream() -> None:
    clock = Clock(table("a", "raw"), table("b", "a"), table("c", "raw", "b"))
    clock.land()
    assert clock.start() == ["a"], "c is due, and a and b are about to bring it more"
    clock.end("a")
    assert clock.start() == ["b"]
    clock.end("b")
    assert clock.start() == ["c"]
    clock.end("c")
    assert clock.scheduler.is_idle


def test_table_does_not_wait_for_an_upstream_that_changed_nothing() -> None:
    clock = Clock(table("a", "raw"), table("b", "a"), table("c", "raw", "b"))
    clock.land()
    assert clock.start() == ["a"]
    clock.end("a", changed=False)
    assert clock.start() == ["c"]
    clock.end("c")
    assert clock.scheduler.is_idle


def test_downstream_is_not_starved_by_changes_that_keep_coming() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", "a"))
    clock.land()
    assert clock.start() == ["a"]
    clock.wait(1)
    clock.land()
    clock.end("a")
    assert clock.start() == ["b", "a"], "b has the older change, and what a is to bring next is newer"


def test_changes_that_arrive_meanwhile_are_coalesced() -> None:
    clock = Clock(table("a", "raw"))
    clock.land()
    assert clock.start() == ["a"]
    for _ in range(3):
        clock.wait(0.1)
        clock.land()
    assert clock.start() == [], "a table is never built twice at once"
    clock.end("a")
    assert clock.start() == [], "and not again within half a second"
    assert clock.scheduler.wake_at(clock.now) == pytest.approx(100.5)
    clock.wait(0.25)
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.scheduler.is_idle, "three changes were one build"


def test_target_lag_leaves_changes_until_they_are_that_old() -> None:
    clock = Clock(table("a", "raw", lag=60))
    clock.land()
    assert clock.start() == []
    assert clock.scheduler.wake_at(clock.now) == 160
    clock.wait(30)
    clock.land()
    assert clock.start() == []
    clock.wait(30)
    assert clock.start() == ["a"]
    clock.end("a", seconds=20)
    clock.land()
    assert clock.scheduler.wake_at(clock.now) == 200, "the next one begins early enough to be done in time"


def test_target_lag_is_not_waited_for_at_the_start() -> None:
    clock = Clock(table("a", "raw", lag=60), table("b", "raw", lag=60), new="b")
    clock.scheduler.mark(name("a"), Changes(clock.now, clock.now), at_once=True)
    clock.land()
    assert clock.start() == ["a", "b"]


def test_target_lag_delays_neither_upstream_nor_downstream() -> None:
    clock = Clock(table("a", "raw"), table("b", "a", lag=60), table("c", "raw", "b"))
    clock.land()
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == ["c"], "it does not wait for b, which may be late"
    clock.end("c")
    clock.wait(60)
    assert clock.start() == ["b"]
    clock.end("b")
    assert clock.start() == ["c"]


def test_table_waits_for_upstream_no_longer_than_its_lag_allows() -> None:
    clock = Clock(table("a", "x"), table("b", "y", "a", lag=3))
    clock.land("x")
    assert clock.start() == ["a"]
    clock.land("y")
    clock.wait(2.9)
    assert clock.start() == []
    clock.wait(0.2)
    assert clock.start() == ["b"]


def test_failing_table_backs_off_alone() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw"), table("c", "raw", "a"))
    clock.land()
    assert clock.start() == ["a", "b"]
    clock.fail("a")
    clock.end("b")
    assert clock.start() == ["c"], "downstream goes on with what other inputs bring"
    clock.end("c")
    clock.wait(1)
    clock.land()
    assert clock.start() == ["b", "c"]


def test_backoff_ends_with_the_first_success() -> None:
    clock = Clock(table("a", "raw"))
    clock.land()
    for pause in (5, 10, 20, 40, 80, 160, 300, 300):
        assert clock.start() == ["a"]
        clock.fail("a")
        assert clock.scheduler.wake_at(clock.now) == clock.now + pause
        clock.wait(pause - 0.1)
        assert clock.start() == []
        clock.wait(0.1)
    assert clock.start() == ["a"]
    clock.end("a")
    clock.land()
    clock.wait(1)
    assert clock.start() == ["a"]
    clock.fail("a")
    assert clock.scheduler.wake_at(clock.now) == clock.now + 5


def test_table_waits_for_inputs_that_were_never_built() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", "a"), table("c", "b"), table("d", "raw"), new="a b c")
    for word in "abc":
        clock.scheduler.mark(name(word), Changes(clock.now, clock.now))
    clock.land()
    assert clock.start() == ["a", "d"]
    clock.fail("a")
    assert clock.scheduler.held_up_by(name("a"), clock.now) == (name("b"), name("c"))
    clock.wait(4.9)
    assert clock.start() == [], "however long it takes"
    clock.wait(0.1)
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == ["b"]
    clock.end("b")
    assert clock.start() == ["c"]


def test_nothing_is_built_while_an_upstream_is_refreshed() -> None:
    clock = Clock(table("a", "x"), table("b", "y", "a"))
    clock.land("x")
    assert clock.start() == ["a"]
    clock.scheduler.note_plan(name("a"), is_refresh=True)
    clock.land("y")
    clock.wait(1_000)
    assert clock.start() == []
    clock.end("a")
    assert clock.start() == ["b"]


def test_nothing_is_built_until_the_plan_of_an_upstream_is_known() -> None:
    clock = Clock(table("a", "x"), table("b", "y", "a"))
    clock.land("y")
    clock.wait(1)
    clock.land("x")
    clock.scheduler.claim([name("b")])
    assert clock.scheduler.take(clock.now) == name("a")
    clock.scheduler.claim([])
    assert clock.scheduler.take(clock.now) is None, "it may be a refresh"
    clock.scheduler.note_plan(name("a"), is_refresh=False)
    assert clock.scheduler.take(clock.now) == name("b")


def test_refresh_marks_tables_that_only_look_it_up() -> None:
    clock = Clock(table("a", "x"), table("b", "y", looks_up="a"))
    clock.land("x")
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == [], "what is looked up makes no build"
    clock.wait(1)
    clock.land("x")
    assert clock.start() == ["a"]
    clock.scheduler.note_plan(name("a"), is_refresh=True)
    clock.end("a")
    assert clock.start() == ["b"]


def test_lookup_is_as_new_as_the_changes_that_look_it_up() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", looks_up="a"))
    clock.land()
    assert clock.start() == ["a"]
    clock.fail("a")
    assert clock.start() == [], "nothing would build these rows of b again"
    clock.wait(5)
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == ["b"]


def test_long_builds_leave_their_workers_to_quick_ones() -> None:
    clock = Clock(*(table(word, f"{word}_raw") for word in ("slow1", "slow2", "unknown", "quick1", "quick2", "quick3")))
    for word in ("quick1", "quick2", "quick3"):
        clock.land(f"{word}_raw")
        assert clock.start() == [word]
        clock.end(word, seconds=0.2)
    clock.wait(10)
    for word in ("slow1", "slow2", "unknown", "quick1", "quick2", "quick3"):
        clock.land(f"{word}_raw")
    assert clock.start() == ["slow1", "slow2"]
    assert clock.scheduler.wake_at(clock.now) == clock.now + 5
    clock.wait(5)
    assert clock.start() == ["quick1", "quick2"], "a table of unknown cost waits for a worker of its own"
    clock.end("quick1")
    clock.end("slow1")
    assert clock.start() == ["unknown"], "its change has waited longest"
    clock.end("quick2")
    assert clock.start() == ["quick3"]


def test_downstream_of_a_long_build_goes_on_with_its_other_inputs() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", "a"))
    clock.land()
    assert clock.start() == ["a"]
    clock.wait(29.9)
    assert clock.start() == [], "it is not known what b costs"
    clock.end("a")
    assert clock.start() == ["b"]
    clock.end("b", seconds=0.2)
    clock.wait(1)
    clock.land()
    assert clock.start() == ["a"]
    clock.wait(4.9)
    assert clock.start() == []
    clock.wait(0.1)
    assert clock.start() == ["b"]


def test_table_that_is_slow_itself_waits_longer_for_its_upstream() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", "a"))
    clock.land()
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == ["b"]
    clock.end("b", seconds=10)
    clock.wait(1)
    clock.land()
    assert clock.start() == ["a"]
    clock.wait(5)
    assert clock.start() == [], "to be built twice would cost 10 seconds"
    assert clock.scheduler.wake_at(clock.now) == clock.now + 15
    clock.wait(15)
    assert clock.start() == ["b"]


def test_claimed_tables_are_left_alone() -> None:
    clock = Clock(table("a", "raw"), table("b", "raw", "a"))
    clock.scheduler.claim([name("a")])
    clock.land()
    assert clock.start() == ["b"]
    clock.scheduler.claim([])
    assert clock.start() == ["a"]


def test_build_interrupted_by_an_outage_is_retried_without_backoff() -> None:
    clock = Clock(table("a", "raw", lag=60))
    clock.land()
    clock.wait(60)
    assert clock.start() == ["a"]
    clock.scheduler.put_back(name("a"))
    clock.wait(1)
    assert clock.start() == ["a"]


def test_freshness_is_the_newest_change_that_a_table_has() -> None:
    clock = Clock(table("a", "raw"), table("b", "a"))
    assert clock.scheduler.newest_change(name("b")) is None
    clock.land()
    clock.wait(0.2)
    clock.land()
    assert clock.start() == ["a"]
    clock.end("a")
    assert clock.start() == ["b"]
    assert clock.scheduler.newest_change(name("b")) is None
    clock.end("b")
    assert clock.scheduler.newest_change(name("b")) == pytest.approx(100.2)


@pytest.mark.parametrize("seed", range(20))
def test_every_change_reaches_every_table(seed: int) -> None:
    """Random graphs, random changes, failures and durations: all ends well, and no rule is broken on the way."""
    chance = random.Random(seed)
    tables: list[ScheduledTable] = []
    for number in range(8):
        possible = ["raw0", "raw1", *(f"t{other}" for other in range(number))]
        followed = chance.sample(possible, k=min(len(possible), chance.randint(1, 3)))
        rest = [candidate for candidate in possible if candidate not in followed and candidate.startswith("t")]
        looks_up = " ".join(chance.sample(rest, k=min(len(rest), chance.randint(0, 1))))
        tables.append(table(f"t{number}", *followed, looks_up=looks_up, lag=chance.choice([None, None, 3, 20])))
    clock = Clock(*tables, new="t0 t3")
    versions = {name(name_): 0 for name_ in ("raw0", "raw1")} | {table.name: 0 for table in tables}
    seen = {table.name: dict.fromkeys(table.inputs, -1) for table in tables}
    by_name = {table.name: table for table in tables}
    running: dict[TableName, tuple[float, dict[TableName, int]]] = {}
    for queued in tables:
        clock.scheduler.mark(queued.name, Changes(clock.now, clock.now), at_once=True)
    for step in range(3_000):
        while (taken := clock.scheduler.take(clock.now)) is not None:
            assert taken not in running
            clock.scheduler.note_plan(taken, is_refresh=chance.random() < 0.2)
            running[taken] = (clock.now + chance.choice([0.05, 0.3, 2, 8]), {up: versions[up] for up in by_name[taken].inputs})
            assert len(running) <= MOST_BUILDS
        for taken in [running_name for running_name, (until, _) in running.items() if until <= clock.now]:
            _, read = running.pop(taken)
            if chance.random() < 0.1:
                clock.scheduler.fail(taken, clock.now)
                continue
            changed = any(read[up] != seen[taken][up] for up in by_name[taken].followed)
            seen[taken] = read
            versions[taken] += changed
            clock.scheduler.succeed(taken, changed=changed, seconds=chance.choice([None, 0.3]))
        if step < 300 and chance.random() < 0.3:
            source = chance.choice(["raw0", "raw1"])
            versions[name(source)] += 1
            clock.land(source)
        if clock.scheduler.is_idle and step > 300:
            break
        clock.wait(chance.choice([0.01, 0.2, 1, 5]))
    assert clock.scheduler.is_idle
    for queued in tables:
        assert {up: seen[queued.name][up] for up in queued.followed} == {up: versions[up] for up in queued.followed}


def test_table_with_a_short_lag_and_its_upstream_go_first() -> None:
    clock = Clock(table("side", "x"), table("other", "y"), table("base", "raw"), table("mart", "base", lag=1.0))
    for source in ("x", "y", "raw"):
        clock.land(source)
        clock.wait(1)
    assert clock.start() == ["base", "side"], "others have waited longer, and get the other worker"
    clock.end("base")
    assert clock.start() == ["mart"]
    clock.end("mart")
    clock.end("side")
    assert clock.start() == ["other"]


def test_one_worker_is_kept_for_a_table_with_a_short_lag_while_it_has_changes() -> None:
    clock = Clock(table("side", "x"), table("other", "y"), table("mart", "raw", lag=2.0))
    for source in ("x", "y", "raw"):
        clock.land(source)
    assert clock.start() == ["side"], "the mart still rests, and will soon need a worker"
    clock.wait(2)
    assert clock.start() == ["mart"]
    clock.end("mart")
    assert clock.start() == ["other"], "nothing is left for the mart"


def test_tables_with_a_short_lag_leave_the_other_worker_to_the_oldest_change() -> None:
    clock = Clock(table("side", "x"), table("a", "raw", lag=0.0), table("b", "raw", lag=0.0))
    clock.land("x")
    clock.wait(1)
    clock.land("raw")
    assert clock.start() == ["a", "side"]
    clock.end("side")
    assert clock.start() == ["b"]


def test_tables_with_a_short_lag_take_turns_from_upstream_to_downstream() -> None:
    clock = Clock(table("side", "z"), table("a", "x"), table("b", "y"), table("mart", "a", "b", lag=0.0))
    clock.land("z")
    assert clock.start() == ["side"], "one of two workers is busy from here on"
    built: list[str] = []
    for _ in range(9):
        for source in ("x", "y"):
            clock.land(source)
        clock.wait(0.3)
        built += clock.start()
        clock.wait(0.2)
        clock.end(built[-1])
    assert built == ["a", "b", "mart"] * 3


def test_no_worker_is_kept_for_a_table_with_a_short_lag_that_fails() -> None:
    clock = Clock(table("side", "x"), table("other", "y"), table("mart", "raw", lag=0.0))
    clock.land("raw")
    assert clock.start() == ["mart"]
    clock.fail("mart")
    for source in ("x", "y"):
        clock.land(source)
    assert clock.start() == ["side", "other"]


def test_one_other_build_runs_at_most_while_a_table_with_a_short_lag_is_late() -> None:
    clock = Clock(table("side", "x"), table("other", "y"), table("base", "raw"), table("mart", "base", lag=0.0))
    for source, words in (("x", ["side"]), ("y", ["other"]), ("raw", ["base", "mart"])):
        clock.land(source)
        for word in words:
            assert clock.start() == [word]
            clock.end(word, seconds=0.1)
    clock.wait(1)
    clock.land("x")
    assert clock.start() == ["side"]
    clock.wait(6)  # a long build leaves its worker to others
    clock.land("y")
    assert clock.start() == ["other"], "nothing is late"
    clock.end("other")
    clock.land("raw")
    assert clock.start() == ["base"]
    clock.wait(1)
    clock.land("raw")
    clock.land("y")
    clock.wait(6)
    assert clock.start() == [], "base has late changes, and one build beside it runs already"
    clock.end("side")
    assert clock.start() == ["other"]


def side_build_beside_a_late_one() -> Clock:
    """Return a clock at which `base`, which a mart with a short lag is built from, is late, and `side` is built beside it."""
    clock = Clock(table("side", "x"), table("base", "raw"), table("mart", "base", lag=0.0))
    clock.land("raw")
    assert clock.start() == ["base"]
    clock.wait(6)
    clock.land("x")
    assert clock.start() == ["side"]
    return clock


def test_other_builds_rest_while_a_table_with_a_short_lag_is_late() -> None:
    clock = side_build_beside_a_late_one()
    clock.wait(2)
    clock.end("side", seconds=2.0)
    clock.land("x")
    assert clock.start() == [], "base is late, and a build of two seconds is followed by six seconds for base"
    assert clock.scheduler.wake_at(clock.now) == clock.now + 6
    clock.end("base")
    assert clock.start() == ["mart"], "it is late, too"
    clock.end("mart")
    assert clock.start() == ["side"], "nothing is late"


def test_other_builds_go_on_after_their_rest() -> None:
    clock = side_build_beside_a_late_one()
    clock.wait(1)
    clock.end("side", seconds=1.0)
    clock.land("x")
    clock.wait(3)
    assert clock.start() == ["side"], "the mart is late for as long as base is, and nothing starves"


def test_tables_with_a_short_lag_share_builds_while_one_of_them_is_late() -> None:
    clock = Clock(table("slow", "x"), table("quick", "y"), table("mart", "slow", "quick", lag=0.0))
    clock.land("x")
    assert clock.start() == ["slow"]
    clock.wait(6)
    clock.land("y")
    assert clock.start() == [], "changes of quick gather while slow is late"
    assert clock.scheduler.wake_at(clock.now) == clock.now + 2.5
    clock.wait(2.5)
    assert clock.start() == ["quick"]
    clock.end("slow")
    clock.end("quick")
    assert clock.start() == ["mart"]
    clock.end("mart")
    clock.wait(1)
    clock.land("y")
    assert clock.start() == ["quick"], "nothing is late"


def test_rest_of_a_backlog_is_built_next() -> None:
    clock = Clock(table("base", "raw"), table("mart", "base"))
    began = clock.now
    clock.land()
    clock.wait(4)
    clock.land()
    assert clock.start() == ["base"]
    clock.end("base", rest_since=began + 3)
    assert clock.scheduler.newest_change(name("base")) == began + 3
    assert clock.start() == ["mart"], "its changes are older than what is left"
    assert clock.scheduler.newest_change(name("mart")) is None
    clock.wait(1)
    assert clock.start() == ["base"]
    clock.end("base")
    clock.end("mart")
    assert clock.scheduler.newest_change(name("mart")) == began + 3
    assert clock.scheduler.newest_change(name("base")) == began + 4
    assert clock.start() == ["mart"]
    clock.end("mart")
    assert clock.scheduler.is_idle
