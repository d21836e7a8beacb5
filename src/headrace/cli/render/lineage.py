"""Render lineage as trees on a terminal, as JSON, and as a Mermaid flowchart."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segments
from rich.text import Text
from rich.tree import Tree

from headrace.spec.sql.lineage import Field, Input, Topic, walk

if TYPE_CHECKING:
    from headrace.spec.model.pipeline import TableName
    from headrace.spec.sql.lineage import ColumnLineage, Lineage, Node, TableLineage

_WIDEST = 1_000_000


def show_lineage(
    console: Console, lineage: Lineage, target: TableName | Field | None, *, as_json: bool = False, as_mermaid: bool = False
) -> None:
    """Print the lineage of a pipeline, a table or a column."""
    if as_json:
        json.dump(lineage_as_json(lineage, target), sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    elif as_mermaid:
        sys.stdout.write(lineage_as_mermaid(lineage, target))
    else:
        for tree in _trees(lineage, target):
            _print_tree(console, tree)


def _print_tree(console: Console, tree: Tree) -> None:
    """Print a tree. A terminal folds long lines; piped output keeps each line whole."""
    options = console.options if console.is_terminal else console.options.update(width=_WIDEST)
    options = options.update(width=Measurement.get(console, options, tree).maximum)
    console.print(Segments(console.render(tree, options)), end="", highlight=False, soft_wrap=True)


def lineage_as_json(lineage: Lineage, target: TableName | Field | None) -> dict[str, object]:
    """Return lineage as JSON values; each of a table's `inputs` has its role, `drives` or `joined`."""
    if target is None:
        return {"pipeline": lineage.pipeline, "tables": [_table_as_json(lineage, table) for table in lineage.tables]}
    if isinstance(target, Field):
        return {
            "pipeline": lineage.pipeline,
            **_column_as_json(lineage, target),
            "upstream": [
                _column_as_json(lineage, upstream) for upstream in walk(target, lineage.sources) if isinstance(upstream, Field)
            ],
            "downstream": [
                _column_as_json(lineage, downstream)
                for downstream in walk(target, lineage.dependents)
                if isinstance(downstream, Field)
            ],
        }
    table = lineage.table(target)
    return {
        "pipeline": lineage.pipeline,
        **(_table_as_json(lineage, table) if table else {}),
        "upstream": [str(upstream) for upstream in walk(target, lineage.inputs)],
        "downstream": [str(downstream) for downstream in walk(target, lineage.readers)],
    }


def lineage_as_mermaid(lineage: Lineage, target: TableName | Field | None) -> str:
    """Return a flowchart with an arrow from each input to its table, dotted if the input is only joined."""
    lines = ["flowchart LR"]
    if isinstance(target, Field):
        fields = [*reversed(walk(target, lineage.sources)), target, *walk(target, lineage.dependents)]
        chosen = [field for field in fields if isinstance(field, Field)]
        ids = {field: f"n{index}" for index, field in enumerate(dict.fromkeys(chosen))}
        lines += [f"  {number}{_shape(lineage, field.of, str(field))}" for field, number in ids.items()]
        lines += [
            f"  {ids[source]} --> {number}"
            for field, number in ids.items()
            for source in lineage.sources(field)
            if source in ids
        ]
        return "\n".join((*lines, f"  style {ids[target]} stroke-width:3px", ""))
    everything: list[Node] = [read.node for table in lineage.tables for read in table.inputs if isinstance(read.node, Topic)]
    everything += [table.table for table in lineage.tables]
    if target is not None:
        near = {*walk(target, lineage.inputs), target, *walk(target, lineage.readers)}
        everything = [node for node in everything if node in near]
    numbers = {node: f"n{index}" for index, node in enumerate(dict.fromkeys(everything))}
    lines += [f"  {number}{_shape(lineage, node, str(node))}" for node, number in numbers.items()]
    for node, number in numbers.items():
        for read in lineage.inputs(node):
            if read.node in numbers:
                lines.append(f"  {numbers[read.node]} {'-->' if read.role == 'drives' else '-.->'} {number}")
    if target is not None:
        lines.append(f"  style {numbers[target]} stroke-width:3px")
    return "\n".join((*lines, ""))


def _shape(lineage: Lineage, node: Node, label: str) -> str:
    """Return a label in the shape of its node: a topic, a raw table, a Python table or a table in SQL."""
    text = '"' + label.replace('"', "#quot;") + '"'
    table = lineage.table(node)
    if table is None:
        return f"([{text}])"
    return {"stream": f"[({text})]", "python": f"[[{text}]]", "sql": f"[{text}]"}[table.made_by]


def _table_as_json(lineage: Lineage, table: TableLineage) -> dict[str, object]:
    return {
        "table": str(table.table),
        "made_by": table.made_by,
        "kind": table.kind,
        "file": table.file,
        "inputs": [_node_as_json(read.node) | {"role": read.role} for read in table.inputs],
        "readers": [str(reader.node) for reader in lineage.readers(table.table)],
        "columns_traced": table.whole,
        "columns": [_column_as_json(lineage, Field(table.table, column.name)) for column in table.columns],
    }


def _column_as_json(lineage: Lineage, field: Field) -> dict[str, object]:
    traced = lineage.column(field)
    shown: dict[str, object] = {**_node_as_json(field.of), "column": field.name}
    if traced is not None:
        shown["from"] = [{**_node_as_json(source.of), "column": source.name} for source in traced.sources]
        shown |= {"expressions": list(traced.expressions)} if traced.expressions else {}
        shown |= {"note": traced.note} if traced.note else {}
    return shown


def _node_as_json(node: Node) -> dict[str, str]:
    return {"topic": node.name} if isinstance(node, Topic) else {"table": str(node)}


def _trees(lineage: Lineage, target: TableName | Field | None) -> Iterable[Tree]:
    if target is None:
        topics = dict.fromkeys(read.node for table in lineage.tables for read in table.inputs if isinstance(read.node, Topic))
        visited: set[Node] = set()
        for topic in topics:
            tree = Tree(Text(str(topic), style="bold"))
            _grow_tables(tree, lineage, topic, lineage.readers, visited)
            yield tree
        for unread in lineage.tables:
            if unread.table not in visited:  # it reads nothing that comes from a topic
                tree = Tree(_table_label(lineage, Input(unread.table, "drives")))
                visited.add(unread.table)
                _grow_tables(tree, lineage, unread.table, lineage.readers, visited)
                yield tree
        return
    if isinstance(target, Field):
        yield from _column_trees(lineage, target)
        return
    yield Tree(_bold(_table_label(lineage, Input(target, "drives"))))
    for title, step, nothing in (
        ("comes from", lineage.inputs, "no table: its rows are fixed"),
        ("feeds", lineage.readers, "nothing else of this pipeline"),
    ):
        tree = Tree(title)
        _grow_tables(tree, lineage, target, step, set())
        if not tree.children:
            tree.add(nothing)
        yield tree
    table = lineage.table(target)
    if table is not None:
        tree = Tree("columns" if table.whole else f"columns that are known; {_opaque(table)}")
        for column in table.columns:
            tree.add(Text(_column_line(column)))
        yield tree


def _column_trees(lineage: Lineage, target: Field) -> Iterable[Tree]:
    table = lineage.table(target.of)
    yield Tree(_bold(_field_label(lineage, target)))
    upward, downward = Tree("comes from"), Tree("goes into")
    _grow_columns(upward, lineage, target, lineage.sources)
    if not upward.children:
        column = lineage.column(target)
        if table is not None and not table.whole:
            upward.add(f"{_opaque(table)}; it reads {', '.join(str(read.node) for read in table.inputs) or 'no table'}")
        elif column is not None:
            upward.add(Text("no column" + (f": {column.note}" if column.note else ", only the expression above")))
    yield upward
    _grow_columns(downward, lineage, target, lineage.dependents)
    if not downward.children:
        downward.add("no other column that can be traced")
    reached = dict.fromkeys(field.of for field in (target, *walk(target, lineage.dependents)) if isinstance(field, Field))
    readers = dict.fromkeys(lineage.table(read.node) for node in reached for read in lineage.readers(node))
    for reader in readers:
        if reader is not None and not reader.whole:
            downward.add(Text(f"perhaps columns of {reader.table}: {_opaque(reader)}"))
    yield downward


def _grow_tables(tree: Tree, lineage: Lineage, node: Node, step: Callable[[Node], Iterable[Input]], visited: set[Node]) -> None:
    """Add the nodes that `step` leads to as branches. A visited node is named again, without its own branches."""
    for read in step(node):
        again = read.node in visited and bool(tuple(step(read.node)))
        label = _table_label(lineage, read)
        branch = tree.add(label.append(" …", style="dim") if again else label)
        if read.node not in visited:
            visited.add(read.node)
            _grow_tables(branch, lineage, read.node, step, visited)


def _grow_columns(
    tree: Tree, lineage: Lineage, field: Field, step: Callable[[Field], Iterable[Field]], path: tuple[Field, ...] = ()
) -> None:
    for neighbour in step(field):
        branch = tree.add(_field_label(lineage, neighbour))
        if neighbour not in path:
            _grow_columns(branch, lineage, neighbour, step, (*path, neighbour))


def _bold(text: Text) -> Text:
    text.stylize_before("bold")
    return text


def _table_label(lineage: Lineage, read: Input) -> Text:
    table = lineage.table(read.node)
    label = Text(str(read.node if table is None else table.table))
    if read.role == "joined":
        label.append(" (looked up)", style="yellow")
    if table is None:
        return label
    how = {"stream": "raw", "python": f"{table.kind}, Python", "sql": str(table.kind)}[table.made_by]
    return label.append(f" {how} · {table.file}", style="dim")


def _field_label(lineage: Lineage, field: Field) -> Text:
    column = lineage.column(field)
    expression = "; ".join(column.expressions) or column.note if column else ""
    label = Text(str(field))
    return label.append(f"  {expression}", style="dim") if expression else label


def _column_line(column: ColumnLineage) -> str:
    sources = ", ".join(str(source) for source in column.sources)
    expression = "; ".join(column.expressions) or column.note
    return f"{column.name}" + (f" ← {sources}" if sources else "") + (f"   {expression}" if expression else "")


def _opaque(table: TableLineage) -> str:
    """Return why a table's columns are not traced."""
    what = "made by Python" if table.made_by == "python" else "made by a query that only Spark can resolve"
    return f"{what}: its tables are traced, its columns are not"
