"""Rename everything in a copy of a pipeline that would conflict with the original."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import yaml

from headrace.spec.loading.document import Value
from headrace.spec.loading.names import namespace_of
from headrace.spec.loading.python_names import change_texts
from headrace.spec.loading.variables import PATTERN

CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^# .*?$", re.DOTALL | re.MULTILINE)
"""The parts of a Markdown file in which names are replaced: code and the title."""

PROPERTIES = re.compile(r"(?:[&!]\S+\s+)*")
"""A YAML value's anchor and tag, which are kept."""

READS = re.compile(r"(\b(?:FROM|JOIN)\s+)(\w+)(?![\w.])", re.IGNORECASE)
"""A table without a namespace after FROM or JOIN: a Postgres table."""

PORTS = (("http", "port"), ("postgres", "seeder", "port"))
"""The keys of the preferred ports in a pipeline's sources."""

TOPIC = re.compile(r'("kafka_topic"\s*:\s*)("(?:[^"\\]|\\.)*")')
"""The topic in an expected row."""


@dataclass(frozen=True)
class Renames:
    """The renames in a copy named `new` of the pipeline `old`."""

    old: str
    new: str
    edits: tuple[tuple[yaml.ScalarNode, str], ...]
    tables: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[yaml.ScalarNode, ...] = ()

    def apply_to_yaml(self, text: str) -> str:
        """Return the text of pipeline.yml with the new values. Comments and formatting are preserved."""
        by_place = {(node.start_mark.index, node.end_mark.index): (node, written) for node, written in self.edits}
        queries = {(node.start_mark.index, node.end_mark.index): (node, None) for node in self.queries}
        for (start, end), (node, written) in sorted({**by_place, **queries}.items(), key=lambda item: item[0], reverse=True):
            if written is None:
                text = text[:start] + _replace_words(text[start:end], self.tables) + text[end:]
                continue
            properties = PROPERTIES.match(text, start, end)
            prefix = properties[0] if properties else ""
            text = text[:start] + prefix + (written if node.style is None else _quote(written)) + text[end:]
        return text

    def apply_to_file(self, path: Path) -> None:
        """Rename in a file of the copy: in Markdown code, SQL, Python strings, YAML, and topics of expected rows."""
        if path.suffix == ".md":
            names = {**self.others, **self.tables, **self.topics, self.old: self.new}
            _rewrite(path, lambda text: CODE.sub(lambda code: _replace_words(code[0], names), text))
        elif path.suffix == ".sql":
            names = {**self.tables, **(self.published if path.parent.name == "serving" else {})}
            _rewrite(path, lambda text: _replace_words(text, names))
        elif path.suffix == ".py":
            _rewrite(path, lambda text: change_texts(text, self._rename_in_text))
        elif path.suffix == ".yaml":
            _rewrite(path, lambda text: _replace_words(text, self.tables))
        elif path.suffix == ".jsonl":
            _rewrite(path, lambda text: _replace_topics(text, self.topics))

    def _rename_in_text(self, text: str) -> str:
        """Return a Python string or comment with tables renamed, Postgres tables only after FROM and JOIN."""
        reads = READS.sub(lambda match: match[1] + self.published.get(match[2], match[2]), text)
        return _replace_words(reads, self.tables)


def find_renames(
    document: Value, *, old: str, new: str, table_files: Sequence[Path] = (), ports: Collection[int] = ()
) -> Renames:
    """Return what to rename in a copy.

    These are the name, each stream's table, topic, locations and their variables, the layers, the Postgres tables, the
    tables that queries and `people` name, and the captured database. Each port becomes the next one that is not in `ports`.
    Layer tables move with their namespace. If that is their folder's name, the folder is renamed.
    """

    def rename_database(name: str) -> str:
        return name if "://" in name else _rename_prefix(name, old, new, signs="_", otherwise=f"{new}_")

    edits: list[tuple[yaml.ScalarNode, str]] = []
    tables: dict[str, str] = {}
    topics: dict[str, str] = {}
    others: dict[str, str] = {}
    rules: tuple[tuple[str, Callable[[str], str], dict[str, str]], ...] = (
        ("table", lambda table: _rename_namespace(table, old, new), tables),
        ("topic", lambda topic: _rename_prefix(topic, old, new, signs=".-_", otherwise=f"{new}-"), topics),
        ("output", lambda path: f"{path.rstrip('/')}-{new}", others),
        ("commit_log", lambda path: f"{path.rstrip('/')}-{new}", others),
    )
    for node in _scalars(document, "name"):
        edits.append((node, new))
    for stream in _children(document, "streams"):
        for key, rule, names in rules:
            for node in _scalars(stream, key):
                edits.append((node, _rename(node.value, rule, names=names, variables=others, old=old, new=new)))
        others[f"{old}.{stream.key}"] = f"{new}.{stream.key}"
    for keys in PORTS:
        for node in _scalars(document, "sources", *keys):
            edits.append((node, _rename(node.value, _next_port(ports), names=others, variables=others, old=old, new=new)))
    for key in ("database", "url"):
        for node in _scalars(document, "sources", "postgres", key):
            edits.append((node, _rename(node.value, rename_database, names=others, variables=others, old=old, new=new)))
    layers: dict[str, str] = {}
    namespaces = list(_scalars(document, "namespace"))
    for node in namespaces:
        others[node.value] = _rename_namespace(f"{node.value}.", old, new).rstrip(".")
        edits.append((node, others[node.value]))
    for path in table_files:
        if namespaces:
            before, after = (
                namespace_of(path.parent.name, written=namespace)
                for namespace in (namespaces[0].value, others[namespaces[0].value])
            )
        else:
            before = path.parent.name
            after = layers.setdefault(before, f"{new}_{before}")
        tables[f"{before}.{path.stem}"] = f"{after}.{path.stem}"
    queries = tuple(query.node for query in _children(document, "queries") if isinstance(query.node, yaml.ScalarNode))
    queries += tuple(
        key.node for key in _children(document, "people") if key.key == "entities" and isinstance(key.node, yaml.ScalarNode)
    )
    queries += tuple(_scalars(document, "sources", "postgres", "by_hand", "see"))
    published: dict[str, str] = {}
    for named, served in _published_tables(document):
        published[named.value] = _rename_prefix(named.value, old, new, signs="_", otherwise=f"{new}_")
        edits.append((named, published[named.value]))
        queries += tuple(_scalars(served, "from"))
    return Renames(old, new, tuple(edits), tables, topics, others, layers, published, queries)


def _rename(
    written: str,
    rule: Callable[[str], str],
    *,
    names: dict[str, str],
    variables: dict[str, str],
    old: str,
    new: str,
) -> str:
    """Return the new value, and add its old and new names to `names` and `variables`.

    A variable with a default belongs to the pipeline and gets a new name. A variable without a default stays, since the copy
    can't know another one that is set.
    """
    match = PATTERN.fullmatch(written)
    if not match or match["fallback"] is None:
        names[written] = rule(written)
        return names[written]
    variable = _rename_prefix(match["name"], old.upper(), new.upper(), signs="_", otherwise=f"{new.upper()}_")
    variables[match["name"]] = variable
    if match["default"]:
        names[match["default"]] = rule(match["default"])
    return f"${{{variable}:-{names.get(match['default'], '')}}}"


def _next_port(taken: Collection[int]) -> Callable[[str], str]:
    """Return a function that replaces a port by the next free one, and leaves other text unchanged."""

    def move(written: str) -> str:
        if not written.isdecimal():
            return written
        return str(next(port for port in count(int(written) + 1) if port not in taken))

    return move


def _rename_prefix(name: str, old: str, new: str, *, signs: str, otherwise: str) -> str:
    """Return the name with its prefix `old` replaced by `new`, or else with the prefix `otherwise`."""
    if name == old or (name.startswith(old) and name[len(old)] in signs):
        return new + name[len(old) :]
    return otherwise + name


def _rename_namespace(table: str, old: str, new: str) -> str:
    """Return the table with the namespace `old` replaced by `new`, or else with a prefixed first namespace."""
    *namespaces, name = table.split(".")
    if old in namespaces:
        return ".".join((*(new if namespace == old else namespace for namespace in namespaces), name))
    return f"{new}_{table}"


def _replace_words(text: str, names: Mapping[str, str]) -> str:
    """Return the text with whole names replaced, longest first. The command `headrace lineage` is not changed."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.-])(?<!headrace )({'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)")
    return pattern.sub(lambda match: names[match[1]], text)


def _replace_topics(text: str, topics: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        topic = json.loads(match[2])
        return match[1] + json.dumps(topics[topic]) if topic in topics else match[0]

    return TOPIC.sub(replace, text)


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    path.write_bytes(change(text).encode("utf-8", "surrogateescape"))


def _children(value: Value, key: str) -> Iterator[Value]:
    try:
        inner = value.at(key)
    except KeyError:
        return
    if isinstance(inner.node, yaml.MappingNode):
        for name, _ in inner.node.value:
            yield inner.at(name.value)


def _published_tables(document: Value) -> Iterator[tuple[yaml.ScalarNode, Value]]:
    """Yield the published Postgres tables: the key node and the value of each."""
    try:
        inner = document.at("serving", "postgres")
    except KeyError:
        return
    if isinstance(inner.node, yaml.MappingNode):
        for key, _ in inner.node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key, inner.at(key.value)


def _scalars(value: Value, *keys: str) -> Iterator[yaml.ScalarNode]:
    """Yield the node under these keys if it is a non-empty scalar."""
    try:
        node = value.at(*keys).node
    except KeyError:
        return
    if isinstance(node, yaml.ScalarNode) and node.value:
        yield node


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
