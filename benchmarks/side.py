"""One side of the comparison, in a process of its own: `python -m benchmarks.side <what it needs, as JSON>`.

It reads orders, one JSON object a line, and answers each with a line. Everything that it starts is a child of it, so that the
tree under it is what the side costs.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from benchmarks.streams import Kind
from headrace.servers.stack import stack_settings
from headrace.settings import STACK, Settings, load_settings

SideName = Literal["headrace", "plain"]


@dataclass(frozen=True)
class Start:
    """Which side this is, where its tables go, and where the events come from. With `stack`, its home has a stack that runs."""

    side: SideName
    home: str
    bootstrap_servers: str
    stack: bool = False

    @property
    def settings(self) -> Settings:
        where = {"profile": STACK} if self.stack else {"spark.master": "local[2]"}
        flags = {"home": self.home, "kafka.bootstrap_servers": self.bootstrap_servers, **where}
        settings = load_settings(flags=flags, environ={}, folder=Path(self.home).parent)
        return stack_settings(settings) if self.stack else settings


@dataclass(frozen=True)
class Order:
    """Land `topics` (each into its table): all there is (`follow` false), or what comes, until the next line.

    With `executors` a cluster's are waited for first, until there are so many.
    """

    kind: Kind
    topics: dict[str, str]
    partitions: int
    follow: bool = False
    executors: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Side(Protocol):
    def land(self, order: Order) -> None:
        """Land all there is, into new tables."""

    def follow(self, order: Order) -> None:
        """Start to land what comes, in the background or not, until `sys.stdin` has a line."""


def main(start: Start) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = _open(start)
    print("ready", file=answers)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        if order.follow:
            print("following", file=answers)
            side.follow(order)
        else:
            side.land(order)
        print("done", file=answers)


def _open(start: Start) -> Side:
    if start.side == "headrace":
        from benchmarks.headrace_side import HeadraceSide

        return HeadraceSide(start.settings)
    from benchmarks.plain_side import PlainSide

    return PlainSide(start.settings)


if __name__ == "__main__":
    main(Start(**json.loads(sys.argv[1])))
