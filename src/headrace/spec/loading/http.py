"""Events over HTTP as pipeline.yml has them: `sources: {http: {file: sources/log.py, port: 9998}}`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from headrace.spec.loading.document import Section, Value, read_text
from headrace.spec.loading.files import Files
from headrace.spec.loading.functions import find_decorated
from headrace.spec.model.pipeline import HttpSource, Method, Receiver, Stream, Webhook
from headrace.spec.model.webhooks import EXAMPLE as WEBHOOK_EXAMPLE
from headrace.spec.model.webhooks import NEEDS, read_webhook
from headrace.spec.problems import Place, Problems, suggest

KEY = "sources"
RECEIVE, WEBHOOK = "receive", "webhook"
EXAMPLE = '@receive("/log", stream="readings") above a function'
METHODS: tuple[Method, ...] = get_args(Method)
PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
OURS = ("/health", "/ready", "/docs", "/openapi.json")
"""Paths that every receiving server has of its own."""
MAX_PORT = 65_535


def read_http(http: Value | None, *, files: Files, streams: Sequence[Stream], problems: Problems) -> HttpSource | None:
    """Return the pipeline's HTTP source, or None where it has none; mistakes are kept as problems."""
    inner = http and problems.attempt(http.section, ("file", "port"), problems=problems)
    if not inner:
        return None
    path = problems.attempt(lambda: files.find(inner.need("file", example="sources/log.py")))
    port = problems.attempt(read_port, inner, example="9998")
    if path is None:
        return None
    place = files.place(path, argument=inner.value.place.argument)
    before = len(problems.errors)
    functions = problems.attempt(_read_functions, path, place=place, streams=streams, problems=problems)
    if functions is None or port is None or len(problems.errors) > before:
        return None
    receivers = tuple(each for each in functions if isinstance(each, Receiver))
    webhooks = tuple(each for each in functions if isinstance(each, Webhook))
    return HttpSource(path, port, receivers, webhooks)


def check_ways(section: Section, *, streams: Sequence[Stream], http: HttpSource | None, problems: Problems) -> None:
    """Check that generators which send through a receiver name one of their own stream's."""
    if http is None and section.find(KEY) and problems.errors:
        return
    for stream in streams:
        if stream.through is not None:
            value = section.values["streams"].at(stream.name, "generator", "through")
            problems.attempt(_check_way, value, stream, http)


def _check_way(value: Value, stream: Stream, http: HttpSource | None) -> None:
    if http is None:
        raise value.error("the pipeline receives nothing over HTTP", fix="Add sources: {http: …}, or leave out through")
    paths = [each.path for each in http.receivers if each.stream == stream.name]
    paths += [each.path for each in http.webhooks if stream.name in each.all_streams]
    if stream.through not in paths:
        hint = suggest(stream.through or "", paths, plural="Receivers of this stream")
        raise value.error(f'no receiver of this stream has the path "{stream.through}"', fix=f"{hint} Fix the path")


def read_port(section: Section, *, example: str) -> int:
    """Return the port that a server of the pipeline prefers."""
    return section.need("port", example=example).whole_number(at_least=1, at_most=MAX_PORT)


def _read_functions(
    path: Path, *, place: Place, streams: Sequence[Stream], problems: Problems
) -> tuple[Receiver | Webhook, ...]:
    """Return the file's receivers and webhooks; the file is read, not run. Mistakes in one of them are kept as problems."""
    before = len(problems.errors)
    try:
        module = ast.parse(read_text(path, place=place))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise place.error(f"not valid Python: {getattr(error, 'msg', error)}", line=line, fix="Fix the line") from None
    found: list[Receiver | Webhook] = []
    calls = [(RECEIVE, *each) for each in _calls(module, RECEIVE, place=place)]
    for decorator, function, call in [*calls, *((WEBHOOK, *each) for each in _calls(module, WEBHOOK, place=place))]:
        read: Callable[..., Receiver | Webhook] = _read_receiver if decorator == RECEIVE else _read_webhook
        receiver = problems.attempt(read, function, call, place=place, streams=streams, problems=problems)
        if receiver is not None and any(each.path == receiver.path for each in found):
            what = f'two functions receive "{receiver.path}"'
            problems.errors.append(place.error(what, line=call.lineno, fix="Give each its own path"))
        elif receiver is not None:
            found.append(receiver)
    if not found and len(problems.errors) == before:
        raise place.error("the file receives nothing", line=1, fix=f"Write from headrace import receive, and {EXAMPLE}")
    return tuple(found)


def _calls(module: ast.Module, decorator: str, *, place: Place) -> Iterator[tuple[str, ast.Call]]:
    """Yield the names of the functions that have the decorator, and its calls."""
    for function, call in find_decorated(module, decorator):
        if isinstance(function, ast.AsyncFunctionDef):
            raise place.error(
                f"{function.name} is async: a receiver only makes an event, and waits for nothing",
                line=function.lineno,
                fix=f"Write def {function.name}",
            )
        if call is None:
            what, example = ("receive needs a path and a stream", EXAMPLE) if decorator == RECEIVE else (NEEDS, WEBHOOK_EXAMPLE)
            raise place.error(what, line=function.lineno, fix=f"Write {example}")
        yield function.name, call


def _read_webhook(function: str, call: ast.Call, *, place: Place, streams: Sequence[Stream], problems: Problems) -> Webhook:
    given = _arguments(call, ("path",), place=place)
    webhook = read_webhook(function, given, place=place, line=call.lineno, streams=streams, problems=problems)
    _check_path(webhook.path, call, place=place)
    return webhook


def _arguments(call: ast.Call, positional: Sequence[str], *, place: Place) -> dict[str, object]:
    """Return the arguments of a decorator by their names."""
    try:
        named = {each.arg or "**": ast.literal_eval(each.value) for each in call.keywords}
        return dict(zip(positional, map(ast.literal_eval, call.args), strict=False)) | named
    except ValueError:
        name = call.func.id if isinstance(call.func, ast.Name) else "the decorator"
        what = f"the arguments of {name} are read without running the file"
        raise place.error(what, line=call.lineno, fix="Write the values themselves") from None


def _check_path(path: str, call: ast.Call, *, place: Place) -> None:
    if not PATH.fullmatch(path) or path in OURS:
        what = f'"{path}" is a path of the server itself' if path in OURS else f'"{path}" is not a path'
        raise place.error(what, line=call.lineno, fix="Write a path such as /log")


def _read_receiver(function: str, call: ast.Call, *, place: Place, streams: Sequence[Stream], problems: Problems) -> Receiver:
    given = _arguments(call, ("path", "stream", "method"), place=place)
    path, stream, method = given.get("path"), given.get("stream"), given.get("method", "GET")
    if not isinstance(path, str) or not isinstance(stream, str):
        raise place.error("receive needs a path and a stream", line=call.lineno, fix=f"Write {EXAMPLE}")
    problems.attempt(_check_path, path, call, place=place)
    names = [each.name for each in streams]
    if stream not in names:
        hint, what = suggest(stream, names, plural="Streams"), f'there is no stream "{stream}"'
        problems.errors.append(place.error(what, line=call.lineno, fix=f"{hint} Fix the name"))
    for known in METHODS:
        if known == method:
            return Receiver(function, path, known, stream)
    raise place.error(f'"{method}" is not a method', line=call.lineno, fix=f"Write one of {', '.join(METHODS)}")
