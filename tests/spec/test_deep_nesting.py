"""Deeply nested files are an error with their name, not a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import SettingsError, SpecError
from headrace.settings.profile import read_profile
from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.capture import read_template
from headrace.spec.loading.ddl import parse_ddl
from headrace.spec.loading.document import parse_document
from headrace.spec.problems import Place, Problems
from headrace.spec.sql.queries import parse_sql

DEEP = 20_000
PLACE = Place("mine/file", "mine")


def avro(depth: int) -> str:
    """Return a schema of nested records that the JSON parser can still read."""
    kind: object = "string"
    for number in range(depth):
        kind = {"type": "record", "name": f"r{number}", "fields": [{"name": "f", "type": kind}]}
    return json.dumps(kind)


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_document("[" * DEEP + "]" * DEEP, place=PLACE, environ={}),
        lambda: parse_document("a: " + "{a: " * DEEP + "1" + "}" * DEEP, place=PLACE, environ={}),
        lambda: parse_document("- " * DEEP, place=PLACE, environ={}),
        lambda: parse_sql("SELECT " + "(" * DEEP + "1" + ")" * DEEP, place=PLACE),
        lambda: parse_ddl("a " + "STRUCT<a: " * DEEP + "INT" + ">" * DEEP, place=PLACE, problems=Problems()),
        lambda: parse_avro("[" * DEEP, place=PLACE, problems=Problems()),
        lambda: parse_avro(avro(300), place=PLACE, problems=Problems()),
    ],
)
def test_parsers_reject_deeply_nested_text(read: Callable[[], object]) -> None:
    with pytest.raises(SpecError, match="nested too deeply") as raised:
        read()
    assert raised.value.where == "mine/file:1"


def test_check_rejects_deeply_nested_files(tmp_path: Path) -> None:
    template, settings = tmp_path / "connector.json", tmp_path / "headrace.toml"
    template.write_text("[" * DEEP)
    settings.write_text("a = " + "[" * DEEP + "]" * DEEP)
    with pytest.raises(SpecError, match="nested too deeply"):
        read_template(template, place=PLACE, environ={})
    with pytest.raises(SettingsError, match=r"nested too deeply|not valid TOML"):
        read_profile(settings, profile="local")
