"""Webhook declarations, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline
from headrace.spec.model.pipeline import Webhook
from tests.support.folders import write_files
from tests.support.webhooks import OWN_STREAMS

TAKE, THING, REST, YAML = "sources/take.py", "schemas/thing.sql", "schemas/rest.sql", "pipeline.yml"
ARGUMENTS = '("/hooks", signatures=["stripe", "shopify"], secret="MY_SECRET", streams=["things"], other="rest")'
FILES = {
    **OWN_STREAMS,
    TAKE: f"from headrace import webhook\n\n@webhook{ARGUMENTS}\ndef take(payload, delivery): ...\n",
}
# id: (file, text to replace, replacement, place of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, str, str, str, str]] = {
    "no arguments": (TAKE, ARGUMENTS, "", f"{TAKE}:4", "webhook needs path, signatures", "Write @webhook("),
    "no secret": (
        TAKE,
        'secret="MY_SECRET", ',
        "",
        f"{TAKE}:3",
        "webhook needs path, signatures, secret",
        "Write @webhook(",
    ),
    "a secret itself": (
        TAKE,
        "MY_SECRET",
        "whsec_abc",
        f"{TAKE}:3",
        "secret must be the name of an environment variable",
        "Write a name",
    ),
    "one signature": (
        TAKE,
        '["stripe", "shopify"]',
        '"stripe"',
        f"{TAKE}:3",
        "signatures and streams of webhook must be lists",
        "Write @webhook(",
    ),
    "no signature": (
        TAKE,
        '["stripe", "shopify"]',
        "[]",
        f"{TAKE}:3",
        "signatures and streams of webhook must be lists",
        "Write @webhook(",
    ),
    "unknown signature": (TAKE, '"stripe"', '"strype"', f"{TAKE}:3", 'unknown signature "strype"', 'Did you mean "stripe"?'),
    "unknown stream": (TAKE, '["things"]', '["thing"]', f"{TAKE}:3", 'not found: stream "thing"', 'Did you mean "things"?'),
    "unknown rest": (TAKE, 'other="rest"', 'other="nowhere"', f"{TAKE}:3", 'not found: stream "nowhere"', "Streams are: "),
    "unknown argument": (TAKE, "other=", "oter=", f"{TAKE}:3", 'unknown argument "oter" of webhook', 'Did you mean "other"?'),
    "batches": (TAKE, 'other="rest"', 'other="rest", batches=1', f"{TAKE}:3", "webhook needs path", "Write @webhook("),
    "our path": (TAKE, '"/hooks"', '"/ready"', f"{TAKE}:3", 'the path "/ready" is reserved', "Write a path"),
    "async": (TAKE, "def take", "async def take", f"{TAKE}:4", "receivers can't be async: take", "Write def take"),
    "no id": (THING, "_event_id STRING, ", "", f"{TAKE}:3", 'stream "things" needs a column _event_id', "Add _event_id STRING"),
    "no time": (THING, "_loaded_at TIMESTAMP", "_loaded_at STRING", f"{TAKE}:3", "needs a column _loaded_at", "Add _loaded_at"),
    "no payload": (REST, "payload", "body", f"{TAKE}:3", 'stream "rest" needs a column payload', "Add payload STRING"),
    "through another": (
        YAML,
        "table: raw.things}",
        "table: raw.things, generator: {file: generators/x.py, through: /hook}}",
        f"{YAML}:6",
        'not found: receiver "/hook" of this stream',
        'Did you mean "/hooks"?',
    ),
}


def check(folder: Path, **changed: tuple[str, str]) -> Check:
    files = {**FILES, "generators/x.py": "def events(random, now): ...\n"}
    for name, (old, new) in changed.items():
        assert old in files[name], old
        files[name] = files[name].replace(old, new)
    write_files(folder / "pipelines" / "mine", files)
    return check_pipeline("mine", environ={}, folder=folder)


def test_webhook_is_parsed_without_running_the_file(tmp_path: Path) -> None:
    result = check(tmp_path, **{TAKE: ("from headrace import webhook", "from headrace import webhook; 1 / 0")})
    assert result.errors == ()
    assert result.pipeline is not None
    assert result.pipeline.http is not None
    expected = Webhook("take", "/hooks", ("stripe", "shopify"), "MY_SECRET", ("things",), "rest")
    assert result.pipeline.http.webhooks == (expected,)
    assert result.pipeline.http.receivers == ()


@pytest.mark.parametrize("name", MISTAKES)
def test_webhook_reports_an_error_with_its_line(tmp_path: Path, name: str) -> None:
    file, old, new, where, what, fix = MISTAKES[name]
    errors = check(tmp_path, **{file: (old, new)}).errors
    assert len(errors) == 1
    assert errors[0].where.endswith(where)
    assert what in errors[0].what
    assert fix in errors[0].next_step
