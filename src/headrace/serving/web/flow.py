"""Lay out a pipeline as a picture: the positions of topics and tables, and the lines between them, from source to mart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.sql.lineage import Lineage, Node, Role, Topic

NODE_WIDTH, NODE_HEIGHT = 204.0, 66.0
COLUMN_GAP, ROW_GAP = 36.0, 14.0
_PASSAGE_HEIGHT = 8.0
_SWEEPS = 8


Kind = Literal["http", "topic", "raw", "table", "postgres"]


@dataclass(frozen=True)
class End:
    """An end of a pipeline outside the lake: a path that receives events over HTTP, or a table of Postgres."""

    kind: Literal["http", "postgres"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Place:
    """The position of a topic, a table or an end; x and y are those of its upper left corner."""

    name: str
    kind: Kind
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """A line from an input to the table that reads it, through these points; dotted if the input is only `joined`."""

    source: str
    target: str
    role: Role
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Flow:
    width: float
    height: float
    places: tuple[Place, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class _Passage:
    """A gap in a column that a long line runs through."""

    source: _Stand
    target: _Stand
    column: int


_Stand = Node | End
_Item = _Stand | _Passage
_Edge = tuple[_Stand, _Stand, Role]


def ends_of(pipeline: Pipeline) -> tuple[tuple[End, Topic] | tuple[TableName, End], ...]:
    """Return the edges from HTTP paths to topics, and from tables to the Postgres tables that they are published to."""
    topics = {stream.name: Topic(stream.topic) for stream in pipeline.streams}
    receivers = pipeline.http.receivers if pipeline.http else ()
    sources = [(End("http", f"{receiver.method} {receiver.path}"), topics[receiver.stream]) for receiver in receivers]
    return (*sources, *((table.source, End("postgres", table.name)) for table in pipeline.serving.postgres))


def draw_flow(lineage: Lineage, *, ends: Sequence[tuple[_Stand, _Stand]] = ()) -> Flow:
    """Return the picture of a pipeline. Every line runs to the right, and no two nodes overlap."""
    edges: list[_Edge] = [(read.node, table.table, read.role) for table in lineage.tables for read in table.inputs]
    edges += [(source, target, "drives") for source, target in ends]
    columns = _columns_of(lineage, edges)
    chains = {(source, target): _chain(source, target, columns) for source, target, _ in edges}
    grid = _fill_columns(columns, chains.values())
    near = _neighbours(chains.values())
    _sort(grid, near)
    tops = _place_vertically(grid, near)
    lowest = min(tops.values(), default=0.0)
    nodes = {item: (columns[item] * (NODE_WIDTH + COLUMN_GAP), tops[item] - lowest) for item in columns}
    return Flow(
        width=max((x + NODE_WIDTH for x, _ in nodes.values()), default=0.0),
        height=max((y + NODE_HEIGHT for _, y in nodes.values()), default=0.0),
        places=tuple(Place(str(node), _kind(lineage, node), *at) for node, at in nodes.items()),
        lines=tuple(
            Line(str(source), str(target), role, tuple(_points(chains[source, target], nodes, tops, lowest)))
            for source, target, role in edges
        ),
    )


def _kind(lineage: Lineage, node: _Stand) -> Kind:
    if isinstance(node, End):
        return node.kind
    table = lineage.table(node)
    return "topic" if table is None else "raw" if table.made_by == "stream" else "table"


def _columns_of(lineage: Lineage, edges: Sequence[_Edge]) -> dict[_Stand, int]:
    """Return the column of each node: the one after its rightmost input."""
    columns: dict[_Stand, int] = {source: 0 for source, _, _ in edges if isinstance(source, End)}
    first = int(bool(columns))
    columns |= {source: first for source, _, _ in edges if isinstance(source, Topic)}
    for table in lineage.tables:  # in dependency order
        before = [columns[read.node] for read in table.inputs if read.node in columns]
        columns[table.table] = max(before, default=first) + 1
    columns |= {target: columns[source] + 1 for source, target, _ in edges if isinstance(target, End)}
    return columns


def _chain(source: _Stand, target: _Stand, columns: Mapping[_Stand, int]) -> list[_Item]:
    passages = [_Passage(source, target, column) for column in range(columns[source] + 1, columns[target])]
    return [source, *passages, target]


def _fill_columns(columns: Mapping[_Stand, int], chains: Iterable[Sequence[_Item]]) -> list[list[_Item]]:
    grid: list[list[_Item]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for node, column in columns.items():
        grid[column].append(node)
    for chain in chains:
        for item in chain:
            if isinstance(item, _Passage):
                grid[item.column].append(item)
    return grid


def _neighbours(chains: Iterable[Sequence[_Item]]) -> dict[_Item, tuple[list[_Item], list[_Item]]]:
    """Return the items before and the items after each item."""
    near: dict[_Item, tuple[list[_Item], list[_Item]]] = {}
    for chain in chains:
        for before, after in pairwise(chain):
            near.setdefault(before, ([], []))[1].append(after)
            near.setdefault(after, ([], []))[0].append(before)
    return near


def _sort(grid: list[list[_Item]], near: Mapping[_Item, tuple[list[_Item], list[_Item]]]) -> None:
    """Order each column by the positions of its neighbours, sweeping in both directions, so that few lines cross."""
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for column in grid if side == 0 else reversed(grid):
            rank = {item: index / max(1, len(items) - 1) for items in grid for index, item in enumerate(items)}
            own = {item: index for index, item in enumerate(column)}

            def wanted(item: _Item, *, side: int = side, rank: dict[_Item, float] = rank) -> float:
                ranks = [rank[neighbour] for neighbour in near.get(item, ([], []))[side]]
                return sum(ranks) / len(ranks) if ranks else rank[item]

            column.sort(key=lambda item, own=own, wanted=wanted: (wanted(item), own[item]))  # type: ignore[misc]


def _height(item: _Item) -> float:
    return _PASSAGE_HEIGHT if isinstance(item, _Passage) else NODE_HEIGHT


def _place_vertically(
    grid: Sequence[Sequence[_Item]], near: Mapping[_Item, tuple[list[_Item], list[_Item]]]
) -> dict[_Item, float]:
    """Return the top of each item, as close to the height of its neighbours as the other items of its column allow."""
    middle: dict[_Item, float] = {}
    for column in grid:
        at = -sum(_height(item) + ROW_GAP for item in column) / 2
        for item in column:
            middle[item] = at + _height(item) / 2
            at += _height(item) + ROW_GAP
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for column in grid if side == 0 else list(reversed(grid)):
            wishes = [
                _mean([middle[neighbour] for neighbour in near.get(item, ([], []))[side]], middle[item]) for item in column
            ]
            for item, at in zip(column, _spread(column, wishes), strict=True):
                middle[item] = at
    return {item: at - _height(item) / 2 for item, at in middle.items()}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(column: Sequence[_Item], wishes: Sequence[float]) -> list[float]:
    """Return the middles of a column's items, in order and without overlaps, close to the wished ones.

    Items that would overlap become a block, which is placed at the average of its items' wishes.
    """
    blocks: list[tuple[float, list[float]]] = []  # the middle of the first item, and the others' distances from it
    for index, wish in enumerate(wishes):
        first, offsets = wish, [0.0]
        while blocks:
            above, distances = blocks[-1]
            last = column[index - len(offsets)]
            step = (_height(last) + _height(column[index - len(offsets) + 1])) / 2 + ROW_GAP
            if above + distances[-1] + step <= first:
                break
            joined = [*distances, *(distances[-1] + step + offset for offset in offsets)]
            start = index - len(joined) + 1
            first = _mean([wishes[start + at] - joined[at] for at in range(len(joined))], wish)
            offsets = joined
            blocks.pop()
        blocks.append((first, offsets))
    return [first + offset for first, offsets in blocks for offset in offsets]


def _points(
    chain: Sequence[_Item], nodes: Mapping[_Stand, tuple[float, float]], tops: Mapping[_Item, float], lowest: float
) -> Iterable[tuple[float, float]]:
    """Yield the points of a line: out of the right side, through the middle of each passage, into the left side."""
    source, *passages, target = chain
    assert not isinstance(source, _Passage)
    assert not isinstance(target, _Passage)
    x, y = nodes[source]
    yield x + NODE_WIDTH, y + NODE_HEIGHT / 2
    for item in passages:
        assert isinstance(item, _Passage)
        left = item.column * (NODE_WIDTH + COLUMN_GAP)
        height = tops[item] - lowest + _PASSAGE_HEIGHT / 2
        yield left, height
        yield left + NODE_WIDTH, height
    x, y = nodes[target]
    yield x, y + NODE_HEIGHT / 2
