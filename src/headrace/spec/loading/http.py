"""Read an HTTP source from pipeline.yml: `sources: {http: {file: sources/log.py, port: 9998}}`."""

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
RESERVED = ("/health", "/ready", "/docs", "/openapi.json")
"""Paths that every receiving server serves for itself."""
MAX_PORT = 65_535


def read_http(http: Value | None, *, files: Files, streams: Sequence[Stream], problems: Problems) -> HttpSource | None:
    """Return the pipeline's HTTP source, or None if it has none. Errors are collected in `problems`."""
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
    receivers = tuple(function for function in functions if isinstance(function, Receiver))
    webhooks = tuple(function for function in functions if isinstance(function, Webhook))
    return HttpSource(path, port, receivers, webhooks)


def check_generator_receivers(
    section: Section, *, streams: Sequence[Stream], http: HttpSource | None, problems: Problems
) -> None:
    """Check that a generator with `through` names a receiver of its own stream."""
    if http is None and section.find(KEY) and problems.errors:
        return
    for stream in streams:
        if stream.through is not None:
            value = section.values["streams"].at(stream.name, "generator", "through")
            problems.attempt(_check_receiver, value, stream, http)


def _check_receiver(value: Value, stream: Stream, http: HttpSource | None) -> None:
    if http is None:
        raise value.error("through requires an HTTP source", fix="Add sources: {http: …}, or remove through")
    paths = [receiver.path for receiver in http.receivers if receiver.stream == stream.name]
    paths += [webhook.path for webhook in http.webhooks if stream.name in webhook.all_streams]
    if stream.through not in paths:
        hint = suggest(stream.through or "", paths, plural="Receivers of this stream")
        raise value.error(f'not found: receiver "{stream.through}" of this stream', fix=f"{hint} Fix the path")


def read_port(section: Section, *, example: str) -> int:
    """Return the preferred port of a pipeline's server."""
    return section.need("port", example=example).whole_number(at_least=1, at_most=MAX_PORT)


def _read_functions(
    path: Path, *, place: Place, streams: Sequence[Stream], problems: Problems
) -> tuple[Receiver | Webhook, ...]:
    """Return the file's receivers and webhooks. The file is parsed, not run. Errors are collected in `problems`."""
    before = len(problems.errors)
    try:
        module = ast.parse(read_text(path, place=place))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise place.error(f"not valid Python: {getattr(error, 'msg', error)}", line=line, fix="Fix the line") from None
    functions: list[Receiver | Webhook] = []
    calls = [(RECEIVE, *definition) for definition in _calls(module, RECEIVE, place=place)]
    for decorator, function, call in [*calls, *((WEBHOOK, *definition) for definition in _calls(module, WEBHOOK, place=place))]:
        read: Callable[..., Receiver | Webhook] = _read_receiver if decorator == RECEIVE else _read_webhook
        receiver = problems.attempt(read, function, call, place=place, streams=streams, problems=problems)
        if receiver is not None and any(other.path == receiver.path for other in functions):
            what = f'duplicate path "{receiver.path}"'
            problems.errors.append(place.error(what, line=call.lineno, fix="Give each function its own path"))
        elif receiver is not None:
            functions.append(receiver)
    if not functions and len(problems.errors) == before:
        raise place.error("the file defines no receiver", line=1, fix=f"Add from headrace import receive, and {EXAMPLE}")
    return tuple(functions)


def _calls(module: ast.Module, decorator: str, *, place: Place) -> Iterator[tuple[str, ast.Call]]:
    """Yield the functions with the decorator by name, each with the decorator's call."""
    for function, call in find_decorated(module, decorator):
        if isinstance(function, ast.AsyncFunctionDef):
            raise place.error(
                f"receivers can't be async: {function.name}",
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
    """Return the arguments of a decorator by name."""
    try:
        named = {keyword.arg or "**": ast.literal_eval(keyword.value) for keyword in call.keywords}
        return dict(zip(positional, map(ast.literal_eval, call.args), strict=False)) | named
    except ValueError:
        name = call.func.id if isinstance(call.func, ast.Name) else "the decorator"
        what = f"the arguments of {name} must be literals, since the file is not run"
        raise place.error(what, line=call.lineno, fix="Write the literal values") from None


def _check_path(path: str, call: ast.Call, *, place: Place) -> None:
    if not PATH.fullmatch(path) or path in RESERVED:
        what = f'the path "{path}" is reserved' if path in RESERVED else f'"{path}" is not a valid path'
        raise place.error(what, line=call.lineno, fix="Write a path such as /log")


def _read_receiver(function: str, call: ast.Call, *, place: Place, streams: Sequence[Stream], problems: Problems) -> Receiver:
    given = _arguments(call, ("path", "stream", "method"), place=place)
    path, stream, method = given.get("path"), given.get("stream"), given.get("method", "GET")
    if not isinstance(path, str) or not isinstance(stream, str):
        raise place.error("receive needs a path and a stream", line=call.lineno, fix=f"Write {EXAMPLE}")
    problems.attempt(_check_path, path, call, place=place)
    names = [known_stream.name for known_stream in streams]
    if stream not in names:
        hint, what = suggest(stream, names, plural="Streams"), f'not found: stream "{stream}"'
        problems.errors.append(place.error(what, line=call.lineno, fix=f"{hint} Fix the name"))
    for known in METHODS:
        if known == method:
            return Receiver(function, path, known, stream)
    raise place.error(f'unknown method "{method}"', line=call.lineno, fix=f"Write one of {', '.join(METHODS)}")
