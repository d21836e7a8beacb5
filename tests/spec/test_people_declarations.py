"""The person columns in pipeline.yml, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import check_pipeline, copy_pipeline, load_pipeline
from headrace.spec.model.pipeline import TableName
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """\
name: mine
about: a test
streams:
  events: {topic: events, format: json, schema: schemas/event.sql, table: raw.events, partition_by: [country]}
people:
  entities: core.people
  streams:
    events: {email: [email, "get_json_object(who, '$.email')"], phone: phone, ids: {shop: id}, text: note}
  requests:
    - {from: events, where: kind = 'redact', id: id, email: email}
""",
    "schemas/event.sql": "id STRING, email STRING, phone STRING, who STRING, note STRING, kind STRING, country STRING",
    "core/people.sql": "/*\nkeys: [entity_id]\n*/\nSELECT md5(email) AS entity_id FROM raw.events GROUP BY email",
}

# id: (text to replace, replacement, line of the error, message, next step)
MISTAKES = {
    "unknown key": ("  entities", "  entites", 6, 'unknown key "entites"', 'Did you mean "entities"?'),
    "no such table": ("core.people", "core.peple", 6, '"core.peple" is not a layer table', 'Did you mean "core.people"?'),
    "no such stream": ("    events: {email", "    evnts: {email", 8, '"evnts" is not a stream', 'Did you mean "events"?'),
    "no such column": ("[email,", "[emial,", 8, '"emial" is not a column of raw.events', 'Did you mean "email"?'),
    "not SQL": ("phone: phone", "phone: phone ||| 1", 8, "not valid SQL", "Fix the expression"),
    "a query": ("phone: phone", "phone: (SELECT max(phone))", 8, "the expression must be over one row", "Use columns"),
    "no column": ("phone: phone", "phone: \"'x'\"", 8, "names no column of raw.events", "Name at least one column"),
    "text is a column": ("text: note", "text: lower(note)", 8, '"lower(note)" is not a column', "Fix the name"),
    "in file names": ("ids: {shop: id}", "ids: {shop: country}", 8, "its file names contain people's", "bucket(16, country)"),
    "kind of ids": ("{shop: id}", "{Shop: id}", 8, '"Shop" is not a valid name of ids', "lower-case letters"),
    "says nothing": ('{email: [email, "get_', "{} #[", 8, '"events" names no person columns', "Add one of: email"),
    "no condition": ("where: kind = 'redact', ", "", 10, 'has no "where"', "Add a line such as where:"),
    "requests of nobody": (", email: email}\n", "}\n", 10, "names no person columns", "Add one of"),
    "requests from nowhere": ("from: events", "from: evnts", 10, '"evnts" is not a stream', 'Did you mean "events"?'),
}


def test_people_are_read(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", FILES)
    people = load_pipeline("mine", environ={}, folder=tmp_path).people
    assert people is not None
    whose = people.streams["events"]
    assert whose.emails == ("email", "get_json_object(who, '$.email')")
    assert (whose.phones, whose.ids, whose.text) == (("phone",), {"shop": ("id",)}, ("note",))
    assert people.entities == TableName("core", "people")
    assert [(request.stream, request.where, request.whose.emails) for request in people.requests] == [
        ("events", "kind = 'redact'", ("email",))
    ]


def test_copied_people_have_their_own_entities(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", FILES)
    copy_pipeline("mine", target_name="yours", folder=tmp_path)
    people = load_pipeline("yours", environ={}, folder=tmp_path).people
    assert people is not None
    assert people.entities == TableName("yours_core", "people")


@pytest.mark.parametrize("name", MISTAKES)
def test_people_report_an_error_with_its_line(tmp_path: Path, name: str) -> None:
    old, new, line, what, fix = MISTAKES[name]
    text = FILES["pipeline.yml"]
    assert old in text
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "pipeline.yml": text.replace(old, new, 1)})
    errors = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert [error.where for error in errors] == [f"pipelines/mine/pipeline.yml:{line}"]
    assert what in errors[0].what
    assert fix in errors[0].next_step
