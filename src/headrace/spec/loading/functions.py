"""Parse the tables of a Python file without running it: `@table(keys=["id"])` above a function whose parameters are inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union

import yaml

from headrace.spec.loading.document import Value
from headrace.spec.problems import Place

Definition = Union[ast.FunctionDef, ast.AsyncFunctionDef]
DECORATOR = "table"
SESSION = "spark"
"""The name of the parameter that receives the Spark session instead of a table."""


@dataclass(frozen=True)
class ParsedFunction:
    """A table function: its parameters in order, the first paragraph of its docstring, and its decorator's settings."""

    name: str
    line: int
    about: str
    parameters: tuple[str, ...]
    settings: Value


def parse_functions(text: str, *, place: Place, environ: Mapping[str, str]) -> tuple[ParsedFunction, ...]:
    """Return the tables that a file defines. A file that is not valid Python or defines no table raises a SpecError."""
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise place.error(
            f"not valid Python: {error.msg}", line=error.lineno or 1, column=error.offset, fix="Fix the line"
        ) from None
    functions = tuple(_functions(module, place=place, environ=environ))
    if not functions:
        raise place.error(
            "the file defines no table",
            line=1,
            fix="Add from headrace import table and put @table(…) above a function, or start the file's name with _",
        )
    return functions


def find_decorated(module: ast.Module, decorator: str) -> Iterator[tuple[Definition, ast.Call | None]]:
    """Yield the functions of a file that have a decorator, with the decorator's call or None for a plain decorator."""
    for statement in module.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for expression in statement.decorator_list:
            call = expression if isinstance(expression, ast.Call) else None
            name = call.func if call else expression
            if isinstance(name, ast.Name) and name.id == decorator:
                yield statement, call


def _functions(module: ast.Module, *, place: Place, environ: Mapping[str, str]) -> Iterator[ParsedFunction]:
    for statement, call in find_decorated(module, DECORATOR):
        arguments = statement.args
        positional = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if arguments.vararg or arguments.kwarg:
            raise place.error(
                f"{statement.name} has *args or **kwargs", line=statement.lineno, fix="Name each input as a parameter"
            )
        if isinstance(statement, ast.AsyncFunctionDef):
            raise place.error(
                f"table functions can't be async: {statement.name}", line=statement.lineno, fix=f"Write def {statement.name}"
            )
        yield ParsedFunction(
            name=statement.name,
            line=statement.lineno,
            about=(ast.get_docstring(statement) or "").split("\n\n")[0].replace("\n", " "),
            parameters=tuple(argument.arg for argument in positional),
            settings=Value("", statement.lineno, _settings(call, statement, place), place, environ),
        )


def _settings(call: ast.Call | None, function: ast.FunctionDef, place: Place) -> yaml.Node:
    """Return the decorator's arguments as the YAML settings that a SQL file would have."""
    pairs = []
    if call and call.args:
        raise place.error("the arguments of table must be keyword arguments", line=call.lineno, fix="Write them as keys=[…]")
    for keyword in call.keywords if call else ():
        if keyword.arg is None:
            raise place.error("table does not accept **arguments", line=keyword.lineno, fix="Write out each argument")
        pairs.append((_scalar(keyword.arg, keyword.lineno), _node(keyword.value, place)))
    mark = mark_of(function.lineno)
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, mark, mark)


def _node(expression: ast.expr, place: Place) -> yaml.Node:
    mark = mark_of(expression.lineno)
    if isinstance(expression, (ast.List, ast.Tuple)):
        items = [_node(element, place) for element in expression.elts]
        return yaml.SequenceNode("tag:yaml.org,2002:seq", items, mark, mark)
    if isinstance(expression, ast.Dict):
        pairs = [
            (_node(key, place), _node(value, place))
            for key, value in zip(expression.keys, expression.values, strict=True)
            if key is not None
        ]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, mark, mark)
    try:
        value = ast.literal_eval(expression)
    except ValueError:
        raise place.error(
            "the arguments of table must be literals, since the file is not run",
            line=expression.lineno,
            column=expression.col_offset + 1,
            fix="Write the literal value",
        ) from None
    return _scalar(value, expression.lineno)


def _scalar(value: object, line: int) -> yaml.ScalarNode:
    kinds = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
    kind = kinds.get(type(value), "str")
    return yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", str(value), mark_of(line), mark_of(line))


def mark_of(line: int) -> yaml.Mark:
    """Return a YAML mark at the beginning of a line."""
    return yaml.Mark("", 0, line - 1, 0, None, 0)
