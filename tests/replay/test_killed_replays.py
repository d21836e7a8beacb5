"""A replay that dies at any step leaves the lake whole, and the next one ends as if nothing had happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.landing.verify import Verified
from headrace.layers import build as build_module
from headrace.runs import replaying as replaying_module
from headrace.runs.replaying import Wanted
from headrace.tables.replay_ledger import Window
from tests.dying import KilledError, die_in
from tests.lake import Lake
from tests.replay.shelf import BIG, WIDE, Shelf, hours, thing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.long]

PLACES = (
    "raw.things:staged",
    "raw.things:replayed",
    "raw.things:settled",
    "replay:landed",
    "staging.latest:staged",
    "staging.latest:committed",
)
RIGHT = [{"n": n, "name": f"name {n}"} for n in range(6)] + [{"n": BIG, "name": "name 6"}]


@pytest.mark.parametrize("place", PLACES)
def test_it_dies_and_the_next_one_finishes(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    shelf = Shelf(lake, spark)
    shelf.send([*(thing(each) for each in range(6)), thing(6, n=BIG), b"{broken"])
    shelf.land()
    shelf.build()
    before = shelf.rows("raw.things", "id", "n")
    shelf.write({"schemas/thing.sql": WIDE})
    wanted = Wanted(Window(hours(0), None))
    die_in(monkeypatch, replaying_module, build_module)[:] = [place]
    with pytest.raises(KilledError):
        shelf.replay(wanted)
    if place == "raw.things:staged":
        assert shelf.rows("raw.things", "id", "n") == before
        shelf.check(landed=6, refused=2)
    shelf.lake.lander(shelf.pipeline)  # whoever lands next settles what the replay left
    (verified,) = lake.verify(shelf.pipeline)
    assert verified.holds, verified
    assert counted(verified) in ((6, 2), (7, 1))
    shelf.build()  # and whoever builds next writes the tables anew
    done = shelf.replay(wanted)
    assert done.holds
    shelf.check(landed=7, refused=1)
    assert shelf.rows("raw.things", "n", "name") == sorted(RIGHT, key=lambda row: [str(row["n"]), str(row["name"])])
    newest = {row["id"]: row["newest"] for row in shelf.rows("marts.counted", "id", "newest")}
    assert newest == {"thing-0": 5, "thing-1": BIG, "thing-2": 2, "thing-3": 3, "thing-4": 4}
    assert {row["newest"] for row in shelf.rows("marts.looked_up", "id", "newest") if row["id"] == "thing-1"} == {BIG}


def counted(verified: Verified) -> tuple[int, int]:
    return verified.landed, verified.quarantined
