"""Reject request bodies that are longer than an application allows, before they are in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class _TooLongError(Exception):
    """The body is longer than its limit."""


class BodyLimit:
    """ASGI middleware that answers a body of more than `limit` bytes with `refuse`, at once if Content-Length exceeds it.

    It does not read the rest of a rejected body; the server discards that while it waits for the next request. Paths in
    `except_` have their own limits.
    """

    def __init__(self, app: App, *, limit: int, refuse: App, except_: Collection[str] = ()) -> None:
        self._app = app
        self._limit = limit
        self._refuse = refuse
        self._except = frozenset(except_)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._except:
            await self._app(scope, receive, send)
            return
        if _announced(scope) > self._limit:
            await self._refuse(scope, receive, send)
            return
        length = 0
        is_answered = False

        async def receive_counted() -> Message:
            nonlocal length
            message = await receive()
            length += len(message.get("body", b""))
            if length > self._limit:
                raise _TooLongError
            return message

        async def send_unless_too_long(message: Message) -> None:
            nonlocal is_answered
            if length <= self._limit or is_answered:  # a framework may have answered the error already
                is_answered = True
                await send(message)

        try:
            await self._app(scope, receive_counted, send_unless_too_long)
        except _TooLongError:
            if is_answered:
                raise
        if length > self._limit and not is_answered:
            await self._refuse(scope, receive, send)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
