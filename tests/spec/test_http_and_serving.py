"""The settings of HTTP sources and of serving, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline
from headrace.spec.model.pipeline import Receiver, TableName
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """\
name: mine
about: a test
sources:
  http: {file: sources/take.py, port: 9000}
streams:
  events:
    topic: events
    format: json
    schema: schemas/event.sql
    table: raw.events
    generator: {file: generators/events.py, through: /take}
serving:
  postgres:
    counts: {from: core.counts, ddl: serving/counts.sql}
  pages: serving/pages.py
""",
    "schemas/event.sql": "k STRING, at TIMESTAMP",
    "generators/events.py": "def events(random, now):\n    yield {}\n",
    "sources/take.py": """\
from headrace import Received, receive

@receive("/take", stream="events", method="POST")
def take(k: str, now) -> Received:
    return Received({}, {})
""",
    "core/counts.sql": """\
/*
keys: [k]
watermark: {column: at, delay: 10 minutes}
*/
SELECT k, count(*) AS n FROM raw.events GROUP BY k
""",
    "serving/counts.sql": "CREATE TABLE counts (k TEXT PRIMARY KEY, n BIGINT);\nCREATE INDEX ON counts (n);\n",
    "serving/pages.py": "router = None\n",
}
TAKE, DDL, YAML = "sources/take.py", "serving/counts.sql", "pipeline.yml"

# id: (file, text to replace, replacement, place of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, str, str, str, str]] = {
    "unknown source": (YAML, "http:", "ftp:", f"{YAML}:4", 'unknown key "ftp"', "Keys are: http, postgres."),
    "no port": (YAML, ", port: 9000", "", f"{YAML}:4", '"http" has no "port"', "Add a line such as port: 9998"),
    "port too high": (YAML, "9000", "99999", f"{YAML}:4", '"port" must be from 1 to 65535, not 99999', "Change the number"),
    "no such file": (YAML, "take.py", "tke.py", f"{YAML}:4", 'not found: file "sources/tke.py"', "Create it or fix the path"),
    "not Python": (TAKE, "def take", "def", f"{TAKE}:4", "not valid Python", "Fix the line"),
    "nothing received": (TAKE, "@receive", "@other", f"{TAKE}:1", "the file defines no receiver", "Add from headrace import"),
    "no arguments": (
        TAKE,
        '("/take", stream="events", method="POST")',
        "",
        f"{TAKE}:4",
        "receive needs a path",
        "Write @receive",
    ),
    "not read": (TAKE, '"/take"', "PATH", f"{TAKE}:3", "the arguments of receive must be literals", "Write the literal values"),
    "no path": (TAKE, '"/take"', '"take"', f"{TAKE}:3", '"take" is not a valid path', "Write a path such as /log"),
    "our path": (TAKE, '"/take"', '"/health"', f"{TAKE}:3", 'the path "/health" is reserved', "Write a path"),
    "no such stream": (
        TAKE,
        'stream="events"',
        'stream="event"',
        f"{TAKE}:3",
        'not found: stream "event"',
        'Did you mean "events"?',
    ),
    "method": (TAKE, "POST", "PUT", f"{TAKE}:3", 'unknown method "PUT"', "Write one of GET, POST"),
    "async": (TAKE, "def take", "async def take", f"{TAKE}:4", "receivers can't be async: take", "Write def take"),
    "same path twice": (
        TAKE,
        "from headrace import Received, receive\n",
        'from headrace import Received, receive\n@receive("/take", "events")\ndef one(now): ...\n',
        f"{TAKE}:5",
        'duplicate path "/take"',
        "Give each function its own path",
    ),
    "through nothing": (
        YAML,
        "through: /take",
        "through: /tak",
        f"{YAML}:11",
        'not found: receiver "/tak"',
        'Did you mean "/take"?',
    ),
    "through without": (
        YAML,
        "sources:\n  http: {file: sources/take.py, port: 9000}\n",
        "",
        f"{YAML}:9",
        "through requires an HTTP source",
        "Add sources: {http: …}, or remove through",
    ),
    "unknown serving": (YAML, "pages:", "page:", f"{YAML}:15", 'unknown key "page"', 'Did you mean "pages"?'),
    "pages that are none": (YAML, "pages.py", "counts.sql", f"{YAML}:15", "is not a Python file", "Name a .py file"),
    "unknown table": (YAML, "core.counts", "core.count", f"{YAML}:14", "is not a layer table", 'Did you mean "core.counts"?'),
    "raw table": (
        YAML,
        "core.counts",
        "raw.events",
        f"{YAML}:14",
        '"raw.events" is not a layer table',
        "Layer tables are: core.counts",
    ),
    "name that can't be": (
        YAML,
        "counts: {",
        "headrace_published: {",
        f"{YAML}:14",
        "is not a valid name of a published table",
        "Use lower-case",
    ),
    "no ddl": (
        YAML,
        ", ddl: serving/counts.sql",
        "",
        f"{YAML}:14",
        'has no "ddl"',
        "Add a line such as ddl: serving/counts.sql",
    ),
    "ddl that drops": (
        DDL,
        "CREATE INDEX ON counts (n)",
        "DROP TABLE x",
        f"{DDL}:1",
        "only CREATE TABLE and CREATE INDEX are allowed",
        "Write",
    ),
    "ddl of another": (
        DDL,
        "TABLE counts",
        "TABLE other",
        f"{DDL}:1",
        'one table "counts", as in pipeline.yml, not "other',
        "Create one table",
    ),
    "other key": (
        DDL,
        "PRIMARY KEY",
        "NOT NULL",
        f"{DDL}:1",
        "the primary key () differs from the keys of core.counts (k)",
        "Give",
    ),
    "not SQL": (DDL, "TABLE counts (k", "TABLE counts ((k", f"{DDL}:1", "not valid Postgres SQL", "Fix the statement"),
    "watermark of nothing": (
        "core/counts.sql",
        "column: at",
        "column: att",
        "core/counts.sql:3",
        'watermark "att"',
        "Did you mean",
    ),
    "watermark without delay": (
        "core/counts.sql",
        ", delay: 10 minutes",
        "",
        "core/counts.sql:3",
        'has no "delay"',
        "Add a line",
    ),
    "no keys": ("core/counts.sql", "keys: [k]", "kind: full", f"{YAML}:14", "does not keep one row per key", "Publish a table"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "pipelines" / "mine", FILES)


def check(folder: Path) -> Check:
    return check_pipeline("mine", environ={}, folder=folder.parents[1])


def test_http_and_serving_are_read(folder: Path) -> None:
    result = check(folder)
    assert [str(error) for error in result.errors] == []
    assert result.pipeline is not None
    http, serving = result.pipeline.http, result.pipeline.serving
    assert http is not None
    assert (http.file, http.port) == (folder / "sources/take.py", 9000)
    assert http.receivers == (Receiver("take", "/take", "POST", "events"),)
    (table,) = serving.postgres
    assert (table.name, table.source, table.columns, table.primary_key) == (
        "counts",
        TableName("core", "counts"),
        ("k", "n"),
        ("k",),
    )
    assert serving.pages == folder / "serving/pages.py"
    assert result.pipeline.streams[0].through == "/take"
    watermark = result.pipeline.tables[0].watermark
    assert watermark is not None
    assert (watermark.column, watermark.seconds) == ("at", 600.0)


@pytest.mark.parametrize("name", MISTAKES)
def test_http_and_serving_report_an_error_with_its_place(folder: Path, name: str) -> None:
    file, old, new, where, what, fix = MISTAKES[name]
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    errors = check(folder).errors
    assert [(error.where.removeprefix("pipelines/mine/"), what in error.what) for error in errors] == [(where, True)], errors
    assert errors[0].next_step.startswith(fix), errors[0]
    assert errors[0].next_step.endswith("then run: headrace check mine")
