"""What a server that takes events answers: a JSON object, and when it refuses, why and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import Response
from pydantic import BaseModel

RETRY_SECONDS = 1


class Refusal(BaseModel):
    """Why a request was not taken."""

    status: str
    message: str


def answer(content: Mapping[str, object], status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Gives back a response with this content."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def refuse(message: str, status: int, *, headers: Mapping[str, str] | None = None) -> Response:
    """Gives back a response that says why a request was not taken."""
    return answer({"status": "error", "message": message}, status, headers=headers)


def refuse_for_now(what: str) -> Response:
    """Gives back the response to a request that may be taken when it is sent again."""
    message = f"{what}: send it again in {RETRY_SECONDS} second"
    return refuse(message, 503, headers={"Retry-After": str(RETRY_SECONDS)})
