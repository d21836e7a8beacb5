"""YAML documents whose values keep their file and line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import yaml

from headrace.errors import SpecError
from headrace.spec.loading.variables import PATTERN, VariableError, fill_variables
from headrace.spec.problems import Place, Problems, suggest

Choice = TypeVar("Choice", bound=str)
WHOLE_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*")
STRING, INTEGER, FLOAT, NULL, TRUTH = (f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "null", "bool"))
_YES = ("true", "yes", "on")


@dataclass(frozen=True)
class Value:
    """A value of a document: its key, the key's line, its YAML node, and the environment for variables in its text."""

    key: str
    key_line: int
    node: yaml.Node
    place: Place
    environ: Mapping[str, str]

    def error(self, what: str, *, fix: str) -> SpecError:
        """Return a SpecError for the line of this value."""
        return self.place.error(what, line=_line(self.node), fix=fix)

    def key_error(self, what: str, *, fix: str) -> SpecError:
        """Return a SpecError for the line of this value's key."""
        return self.place.error(what, line=self.key_line, fix=fix)

    def text(self, *, example: str = '"…"') -> str:
        """Return the text with its variables filled in."""
        node = self.node
        if not isinstance(node, yaml.ScalarNode) or node.tag != STRING:
            raise self._wrong_type("text", fix=f"Write it as text ({self.key}: {example})")
        return self._fill(node)

    def is_text(self) -> bool:
        """Return whether this is a scalar rather than a list or a mapping."""
        return isinstance(self.node, yaml.ScalarNode)

    def is_section(self) -> bool:
        """Return whether this is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    def is_list(self) -> bool:
        """Return whether this is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    def whole_number(self, *, at_least: int, at_most: int) -> int:
        """Return the whole number. A text counts if it is one after its variables are filled in."""
        node = self.node
        if not isinstance(node, yaml.ScalarNode) or (node.tag != INTEGER and not PATTERN.search(node.value)):
            raise self._wrong_type("a whole number", fix=f"Write a number from {at_least} to {at_most}")
        written = self._fill(node)
        if not WHOLE_NUMBER.fullmatch(written):
            raise self._wrong_type("a whole number", fix=f"Write a number from {at_least} to {at_most}", text=written)
        number = int(written.replace("_", ""))
        if not at_least <= number <= at_most:
            raise self.error(f'"{self.key}" must be from {at_least} to {at_most}, not {number}', fix="Change the number")
        return number

    def number(self, *, at_least: int, at_most: int) -> float:
        """Return the number, whole or decimal."""
        node = self.node
        if not isinstance(node, yaml.ScalarNode) or node.tag not in (INTEGER, FLOAT):
            raise self._wrong_type("a number", fix=f"Write a number from {at_least} to {at_most}")
        try:
            number = float(node.value)
        except ValueError:
            raise self._wrong_type("a number", fix=f"Write a number from {at_least} to {at_most}") from None
        if not at_least <= number <= at_most:
            raise self.error(f'"{self.key}" must be from {at_least} to {at_most}, not {node.value}', fix="Change the number")
        return number

    def boolean(self) -> bool:
        """Return the boolean value."""
        node = self.node
        if not isinstance(node, yaml.ScalarNode) or node.tag != TRUTH:
            raise self._wrong_type("true or false", fix=f"Write {self.key}: true, or {self.key}: false")
        return str(node.value).lower() in _YES

    def choice(self, options: Sequence[Choice], *, aliases: Mapping[str, Choice] = MappingProxyType({})) -> Choice:
        """Return the option that the text names. `aliases` are former names of options."""
        text = self.text()
        written = aliases.get(text, text)
        for option in options:
            if option == written:
                return option
        raise self.error(
            f'invalid value "{written}" for "{self.key}"', fix=f"{suggest(written, options, plural='Choices')} Fix the value"
        )

    def items(self) -> tuple[Value, ...]:
        """Return the values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self._wrong_type("a list", fix=f"Write it as a list ({self.key}: […])")
        return tuple(Value(self.key, _line(item), item, self.place, self.environ) for item in self.node.value)

    def at(self, *keys: str) -> Value:
        """Return the value under these nested keys. Raise a KeyError if a key is missing."""
        if not keys:
            return self
        pairs = self.node.value if isinstance(self.node, yaml.MappingNode) else []
        for key_node, node in pairs:
            if key_node.value == keys[0]:
                return Value(keys[0], _line(key_node), node, self.place, self.environ).at(*keys[1:])
        raise KeyError(keys[0])

    def section(
        self, known: Collection[str] | None, *, problems: Problems, aliases: Mapping[str, str] = MappingProxyType({})
    ) -> Section:
        """Return the values by their keys. `aliases` are former names of keys.

        Unknown keys, unless `known` is None, and duplicate keys are collected as errors.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self._wrong_type("keys with values", fix="Write it as lines of key: value")
        values: dict[str, Value] = {}
        for key_node, node in self.node.value:
            problems.attempt(self._take_pair, key_node, node, known=known, aliases=aliases, into=values)
        return Section(self, {key: value for key, value in values.items() if value.node.tag != NULL})

    def _take_pair(
        self,
        key_node: yaml.Node,
        node: yaml.Node,
        *,
        known: Collection[str] | None,
        aliases: Mapping[str, str],
        into: dict[str, Value],
    ) -> None:
        key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        key = aliases.get(key, key)
        line = _line(key_node)
        if known is not None and key not in known:
            fix = f"{suggest(key, known, plural='Keys')} Fix the key"
            raise self.place.error(f'unknown key "{key}"', line=line, fix=fix)
        if key in into:
            raise self.place.error(
                f'duplicate key "{key}", first set in line {into[key].key_line}', line=line, fix="Remove one of the two"
            )
        into[key] = Value(key, line, node, self.place, self.environ)

    def _fill(self, node: yaml.ScalarNode) -> str:
        try:
            return fill_variables(str(node.value), self.environ)
        except VariableError as error:
            raise self.error(error.what, fix=error.fix) from None

    def _wrong_type(self, wanted: str, *, fix: str, text: str | None = None) -> SpecError:
        name = f'"{self.key}"' if self.key else "the document"
        shown = _describe(self.node) if text is None else f'the text "{text}"'
        return self.error(f"{name} must be {wanted}, not {shown}", fix=fix)


@dataclass(frozen=True)
class Section:
    """Values by their keys. A key with an empty value counts as absent."""

    value: Value
    values: Mapping[str, Value]

    def find(self, key: str) -> Value | None:
        """Return the key's value, or None if it is absent."""
        return self.values.get(key)

    def need(self, key: str, *, example: str) -> Value:
        """Return the key's value. If it is missing, the SpecError shows the example."""
        if key not in self.values:
            name = f'"{self.value.key}"' if self.value.key else "the document"
            raise self.value.key_error(f'{name} has no "{key}"', fix=f"Add a line such as {key}: {example}")
        return self.values[key]


def read_document(path: Path, *, place: Place, environ: Mapping[str, str]) -> Value:
    """Return the YAML document in a file. Invalid YAML raises a SpecError with its line."""
    return parse_document(read_text(path, place=place), place=place, environ=environ)


def parse_document(text: str, *, place: Place, environ: Mapping[str, str]) -> Value:
    """Return the YAML document in a text."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise place.error(f"not valid YAML: {error.problem or error.context}", line=line, fix="Fix the line") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise place.error(f"not valid YAML: {error.reason}", line=line, fix="Remove the character") from None
    except RecursionError:
        raise place.error("the file is nested too deeply", line=1, fix="Write it with fewer levels") from None
    if node is None:
        raise place.error("the file is empty", line=1, fix="Write the pipeline's name, about and streams")
    return Value("", 1, node, place, environ)


def read_text(path: Path, *, place: Place) -> str:
    """Return a file's text. A file that can't be read or is not UTF-8 raises a SpecError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise place.error("the file is not UTF-8 text", line=line, fix="Save it as UTF-8") from None
    except OSError as error:
        reason = error.strerror or "not readable"
        raise place.error(f"the file can't be read: {reason}", line=1, fix="Make the file readable") from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _describe(node: yaml.Node) -> str:
    """Return a description of a value: `the number 5`, `a list`."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "keys with values"
    kind = node.tag.rpartition(":")[2]
    return {
        "str": f'the text "{node.value}"',
        "int": f"the number {node.value}",
        "float": f"the number {node.value}",
        "bool": f"the boolean {node.value}",
        "timestamp": f"the date {node.value}",
        "null": "empty",
    }.get(kind, f"{kind} {node.value}")
