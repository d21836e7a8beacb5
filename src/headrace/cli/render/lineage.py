"""How lineage looks: as trees on a terminal, as JSON, and as a Mermaid flowchart."""

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
    """Print a tree: on a terminal its long lines are folded, and what is piped has each of them whole."""
    options = console.options if console.is_terminal else console.options.update(width=_WIDEST)
    options = options.update(width=Measurement.get(console, options, tree).maximum)
    console.print(Segments(console.render(tree, options)), end="", highlight=False, soft_wrap=True)


def lineage_as_json(lineage: Lineage, target: TableName | Field | None) -> dict[str, object]:
    """Return lineage as plain values; a table's `inputs` say which of them drive it and which are joined."""
    if target is None:
        return {"pipeline": lineage.pipeline, "tables": [_table_as_json(lineage, each) for each in lineage.tables]}
    if isinstance(target, Field):
        return {
            "pipeline": lineage.pipeline,
            **_column_as_json(lineage, target),
            "upstream": [_column_as_json(lineage, each) for each in walk(target, lineage.sources) if isinstance(each, Field)],
            "downstream": [
                _column_as_json(lineage, each) for each in walk(target, lineage.dependents) if isinstance(each, Field)
            ],
        }
    table = lineage.table(target)
    return {
        "pipeline": lineage.pipeline,
        **(_table_as_json(lineage, table) if table else {}),
        "upstream": [str(each) for each in walk(target, lineage.inputs)],
        "downstream": [str(each) for each in walk(target, lineage.readers)],
    }


def lineage_as_mermaid(lineage: Lineage, target: TableName | Field | None) -> str:
    """Return a flowchart: an arrow leads from an input to what is made of it, dotted where it is only joined."""
    lines = ["flowchart LR"]
    if isinstance(target, Field):
        fields = [*reversed(walk(target, lineage.sources)), target, *walk(target, lineage.dependents)]
        chosen = [each for each in fields if isinstance(each, Field)]
        ids = {each: f"n{index}" for index, each in enumerate(dict.fromkeys(chosen))}
        lines += [f"  {number}{_shape(lineage, each.of, str(each))}" for each, number in ids.items()]
        lines += [
            f"  {ids[source]} --> {number}" for each, number in ids.items() for source in lineage.sources(each) if source in ids
        ]
        return "\n".join((*lines, f"  style {ids[target]} stroke-width:3px", ""))
    everything: list[Node] = [read.node for each in lineage.tables for read in each.inputs if isinstance(read.node, Topic)]
    everything += [each.table for each in lineage.tables]
    if target is not None:
        near = {*walk(target, lineage.inputs), target, *walk(target, lineage.readers)}
        everything = [each for each in everything if each in near]
    numbers = {each: f"n{index}" for index, each in enumerate(dict.fromkeys(everything))}
    lines += [f"  {number}{_shape(lineage, each, str(each))}" for each, number in numbers.items()]
    for each, number in numbers.items():
        for read in lineage.inputs(each):
            if read.node in numbers:
                lines.append(f"  {numbers[read.node]} {'-->' if read.role == 'drives' else '-.->'} {number}")
    if target is not None:
        lines.append(f"  style {numbers[target]} stroke-width:3px")
    return "\n".join((*lines, ""))


def _shape(lineage: Lineage, node: Node, label: str) -> str:
    """Return a label in the shape of what it names: a topic, a raw table, a Python table or a table in SQL."""
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
        "inputs": [_node_as_json(each.node) | {"role": each.role} for each in table.inputs],
        "readers": [str(each.node) for each in lineage.readers(table.table)],
        "columns_traced": table.whole,
        "columns": [_column_as_json(lineage, Field(table.table, each.name)) for each in table.columns],
    }


def _column_as_json(lineage: Lineage, field: Field) -> dict[str, object]:
    found = lineage.column(field)
    shown: dict[str, object] = {**_node_as_json(field.of), "column": field.name}
    if found is not None:
        shown["from"] = [{**_node_as_json(each.of), "column": each.name} for each in found.sources]
        shown |= {"expressions": list(found.expressions)} if found.expressions else {}
        shown |= {"note": found.note} if found.note else {}
    return shown


def _node_as_json(node: Node) -> dict[str, str]:
    return {"topic": node.name} if isinstance(node, Topic) else {"table": str(node)}


def _trees(lineage: Lineage, target: TableName | Field | None) -> Iterable[Tree]:
    if target is None:
        topics = dict.fromkeys(read.node for each in lineage.tables for read in each.inputs if isinstance(read.node, Topic))
        seen: set[Node] = set()
        for topic in topics:
            tree = Tree(Text(str(topic), style="bold"))
            _grow_tables(tree, lineage, topic, lineage.readers, seen)
            yield tree
        for each in lineage.tables:
            if each.table not in seen:  # it reads nothing that comes from a topic
                tree = Tree(_table_label(lineage, Input(each.table, "drives")))
                seen.add(each.table)
                _grow_tables(tree, lineage, each.table, lineage.readers, seen)
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
            upward.add(f"{_opaque(table)}; it reads {', '.join(str(each.node) for each in table.inputs) or 'no table'}")
        elif column is not None:
            upward.add(Text("no column" + (f": {column.note}" if column.note else ", only the expression above")))
    yield upward
    _grow_columns(downward, lineage, target, lineage.dependents)
    if not downward.children:
        downward.add("no other column that can be traced")
    reached = dict.fromkeys(each.of for each in (target, *walk(target, lineage.dependents)) if isinstance(each, Field))
    readers = dict.fromkeys(lineage.table(read.node) for each in reached for read in lineage.readers(each))
    for reader in readers:
        if reader is not None and not reader.whole:
            downward.add(Text(f"perhaps columns of {reader.table}: {_opaque(reader)}"))
    yield downward


def _grow_tables(tree: Tree, lineage: Lineage, node: Node, step: Callable[[Node], Iterable[Input]], seen: set[Node]) -> None:
    """Hang what a step leads to below a tree; what hangs there already is named again, without what is below it."""
    for each in step(node):
        again = each.node in seen and bool(tuple(step(each.node)))
        label = _table_label(lineage, each)
        branch = tree.add(label.append(" …", style="dim") if again else label)
        if each.node not in seen:
            seen.add(each.node)
            _grow_tables(branch, lineage, each.node, step, seen)


def _grow_columns(
    tree: Tree, lineage: Lineage, field: Field, step: Callable[[Field], Iterable[Field]], path: tuple[Field, ...] = ()
) -> None:
    for each in step(field):
        branch = tree.add(_field_label(lineage, each))
        if each not in path:
            _grow_columns(branch, lineage, each, step, (*path, each))


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
    made = "; ".join(column.expressions) or column.note if column else ""
    label = Text(str(field))
    return label.append(f"  {made}", style="dim") if made else label


def _column_line(column: ColumnLineage) -> str:
    sources = ", ".join(str(each) for each in column.sources)
    made = "; ".join(column.expressions) or column.note
    return f"{column.name}" + (f" ← {sources}" if sources else "") + (f"   {made}" if made else "")


def _opaque(table: TableLineage) -> str:
    """Return why a table's columns are not traced."""
    what = "made by Python" if table.made_by == "python" else "made by a query that only Spark can resolve"
    return f"{what}: its tables are traced, its columns are not"
