"""The pages of the control room: HTML without data, which scripts fill from the JSON API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader

from headrace.plurals import count_of
from headrace.serving.web.context import WebContext
from headrace.serving.web.guard import COOKIE, Lock, local_path
from headrace.serving.web.login_throttle import LoginThrottle
from headrace.serving.web.pages import OwnPages
from headrace.serving.web.problems import make_problem

_MONTH_SECONDS = 30 * 24 * 3600
_LONGEST_FORM = 4_096


def make_templates(own_pages: Sequence[OwnPages]) -> Environment:
    """Return the templates of all pages, with links to the pipelines' home pages. Values are escaped."""
    templates = Environment(loader=PackageLoader("headrace.serving.web"), autoescape=True)
    templates.globals["links"] = [(pages.pipeline, pages.home) for pages in own_pages if pages.home]
    return templates


def make_pages(context: WebContext, lock: Lock, *, templates: Environment, own_pages: Sequence[OwnPages]) -> APIRouter:
    """Return the routes of the pages."""
    throttle = LoginThrottle()
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    def page(template: str, /, **values: object) -> HTMLResponse:
        return HTMLResponse(templates.get_template(f"{template}.html").render(page=template, **values))

    @router.get("/")
    def first() -> Response:
        home = _only_home(context, own_pages)
        return RedirectResponse(home, status_code=307) if home else page("room")

    @router.get("/room")
    def control_room() -> HTMLResponse:
        return page("room")

    @router.get("/tables/{name}")
    def table(name: str) -> HTMLResponse:
        shown = context.tables.get(name)
        answer = page("table", name=name, known=shown is not None)
        answer.status_code = 200 if shown else 404
        return answer

    @router.get("/topics")
    def topics() -> HTMLResponse:
        return page("topics")

    @router.get("/topics/{name}")
    def topic(name: str) -> HTMLResponse:
        return page("topic", name=name)

    @router.get("/sql")
    def sql() -> HTMLResponse:
        return page("sql")

    @router.get("/login")
    def ask_for_token(go: Annotated[str, Query(alias="next")] = "/") -> Response:
        if lock.token is None:
            return RedirectResponse(local_path(go), status_code=303)
        return page("login", go=local_path(go), wrong=False)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        address = request.client.host if request.client else ""
        wait = throttle.wait_seconds(address)
        if wait > 0:
            seconds = math.ceil(wait)
            return make_problem(
                429,
                "too many wrong tokens were tried from this address",
                where="/login",
                next_step=f"Wait {count_of(seconds, 'second')}, then sign in with the value of HEADRACE_TOKEN.",
                headers={"Retry-After": str(seconds)},
            )
        body = await _read_form(request)
        if body is None:
            return make_problem(
                413, f"the form has more than {_LONGEST_FORM:,} bytes", where="/login", next_step="Send the token."
            )
        form = parse_qs(body.decode("utf-8", errors="replace"))
        go = local_path(form.get("next", ["/"])[0])
        if not lock.accepts(form.get("token", [""])[0]):
            throttle.fail(address)
            answer = page("login", go=go, wrong=True)
            answer.status_code = 403
            return answer
        throttle.succeed(address)
        welcome = RedirectResponse(go, status_code=303)
        secure = request.url.scheme == "https"
        welcome.set_cookie(COOKIE, lock.session, max_age=_MONTH_SECONDS, httponly=True, samesite="strict", secure=secure)
        return welcome

    return router


async def _read_form(request: Request) -> bytes | None:
    """Return the body, or None if it is longer than the limit; reads no more than that."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM:
            return None
    return body


def _only_home(context: WebContext, own_pages: Sequence[OwnPages]) -> str | None:
    """Return the home page of the only running pipeline; if none runs, of the only one with landed rows."""
    statuses = context.figures()
    running = [status.name for status in statuses if status.running]
    alive = running or [status.name for status in statuses if any(stream.rows for stream in status.streams)]
    homes = {pages.pipeline: pages.home for pages in own_pages}
    return homes.get(alive[0]) if len(alive) == 1 else None
