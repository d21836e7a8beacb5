"""The settings of an entities table, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.definition import definition_of
from headrace.spec import check_pipeline, load_pipeline
from headrace.spec.model import layers as layers_module
from headrace.spec.model.fuzzy import Block, Comparison, Fuzzy
from headrace.spec.model.matching import EmailRules, Match
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.graph import readable_columns
from headrace.spec.sql.lineage import trace_lineage
from tests.support.folders import write_files

INDEX = """/*
kind: entities
keys: [source, source_id]
sequence_by: updated_at
match:
  email_normalized: {from: email, as: email}
  phone_normalized: {from: phone, as: phone, region: country}
except_column_list: [country]
*/
SELECT 'shop' AS source, id AS source_id, email, phone, country, updated_at FROM raw.people
"""
FILES = {
    "pipeline.yml": """name: mine
about: People.
streams:
  people: {topic: people, format: json, schema: schemas/people.sql, table: raw.people}
""",
    "schemas/people.sql": "id STRING, email STRING, phone STRING, country STRING, updated_at TIMESTAMP",
    "semantic/index.sql": INDEX,
}
# id: (text to replace, replacement, line of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, int, str, str]] = {
    "an unknown column": (
        "from: email",
        "from: mail",
        6,
        'match email_normalized "mail" is not a column of this table',
        'Did you mean "email"? Fix the name',
    ),
    "an unknown region column": (
        "region: country",
        "region: land",
        7,
        'match phone_normalized "land" is not a column of this table',
        "Columns are: source, source_id, email, phone, country, updated_at. Fix the name",
    ),
    "no such country": (
        "region: country",
        "region: UK",
        7,
        'unknown country code "UK"',
        "Fix the code, or name a column",
    ),
    "an unknown way": ("as: email", "as: mail", 6, 'invalid value "mail" for "as"', 'Did you mean "email"? Fix the value'),
    "no way": ("{from: email, as: email}", "{from: email}", 6, '"email_normalized" has no "as"', "as: email"),
    "an unknown switch": ("as: email", "as: email, tags: false", 6, 'unknown key "tags"', "Fix the key"),
    "another way's switch": (
        "as: email",
        "as: email, region: US",
        6,
        "region has no effect in a match as email",
        "Remove region",
    ),
    "a switch that is none": (
        "as: email",
        "as: email, dots: maybe",
        6,
        '"dots" must be true or false, not the text "maybe"',
        "Write dots: true, or dots: false",
    ),
    "too small a limit": (
        "as: email",
        "as: email, max_records: 1",
        6,
        '"max_records" must be from 2 to 1000000, not 1',
        "Change the number",
    ),
    "a name of the engine's": (
        "email_normalized:",
        "entity_id:",
        6,
        '"entity_id" is not a valid name of a match column',
        "Use another name",
    ),
    "a column of the query": (
        "email, phone, country",
        "email, email AS email_normalized, phone, country",
        1,
        'column name "email_normalized" is reserved: Headrace adds this column',
        "Rename or remove the column",
    ),
    "no keys": ("keys: [source, source_id]\n", "", 2, "a table of kind entities needs keys", "Add keys: [column]"),
    "no sequence": ("sequence_by: updated_at\n", "", 2, "a table of kind entities needs sequence_by", "Add sequence_by"),
    "another kind": ("kind: entities", "kind: upsert", 5, "match and kind: entities require each other", "or remove both"),
    "deletions": (
        "match:",
        "apply_as_deletes: email = ''\nmatch:",
        5,
        "apply_as_deletes has no effect in a table of kind entities",
        "Remove apply_as_deletes",
    ),
    "an age that is not stored": (
        "match:",
        "oldest_by: country\nmatch:",
        9,
        'except_column_list can\'t contain "country", which identifies rows',
        "Remove it from except_column_list",
    ),
}


FUZZY = INDEX.replace(
    "except_column_list: [country]\n",
    """except_column_list: [country]
fuzzy:
  compare: {email: email, phone_normalized: phone, id: exact}
  block_on:
    - [phone, source]
    - email_normalized
  at_least: 6.5
""",
).replace("email, phone, country, updated_at FROM", "email, phone, country, id, updated_at FROM")
FUZZY_MISTAKES: dict[str, tuple[str, str, int, str, str]] = {
    "an unknown column": (
        "{email: email,",
        "{mail: email,",
        10,
        'fuzzy compare "mail" is not a column of this table',
        'Did you mean "email"? Fix the name',
    ),
    "an unknown block column": (
        "[phone, source]",
        "[phone, sauce]",
        12,
        'fuzzy block_on "sauce" is not a column of this table',
        'Did you mean "source"? Fix the name',
    ),
    "an unknown comparison": (
        "id: exact",
        "id: exactly",
        10,
        'invalid value "exactly" for "id"',
        'Did you mean "exact"? Fix the value',
    ),
    "an unknown key": ("at_least: 6.5", "at_least: 6.5\n  trian: true", 15, 'unknown key "trian"', 'Did you mean "train"?'),
    "training in words": (
        "at_least: 6.5",
        "train: always",
        14,
        '"train" must be true or false, not the text "always"',
        "Write train: true, or train: false",
    ),
    "training without a seed": ("at_least: 6.5", "train: {}", 14, '"train" has no "seed"', "Add a line such as seed: 7"),
    "nothing to compare": (
        "{email: email, phone_normalized: phone, id: exact}",
        "{}",
        10,
        "compare has no columns",
        "Add a column",
    ),
    "no blocks": (
        "  block_on:\n    - [phone, source]\n    - email_normalized\n",
        "",
        9,
        '"fuzzy" has no "block_on"',
        "Add a line such as block_on: [[last_name, postcode], [email]]",
    ),
    "an empty list of blocks": (
        "  block_on:\n    - [phone, source]\n    - email_normalized\n",
        "  block_on: []\n",
        11,
        "block_on has no blocks",
        "Add a block, such as block_on: [[last_name]]",
    ),
    "an empty block": ("[phone, source]", "[]", 12, "the block has no columns", "Name at least one column"),
    "a threshold in words": (
        "at_least: 6.5",
        "at_least: high",
        14,
        '"at_least" must be a number, not the text "high"',
        "Write a number from 0 to 99",
    ),
    "a threshold out of reach": ("6.5", "100", 14, '"at_least" must be from 0 to 99, not 100', "Change the number"),
    "a column that is not stored": (
        "[phone, source]",
        "[country]",
        8,
        'except_column_list can\'t contain "country", which fuzzy compares',
        "Remove it from except_column_list",
    ),
}


@pytest.mark.parametrize("mistake", FUZZY_MISTAKES.values(), ids=FUZZY_MISTAKES.keys())
def test_fuzzy_reports_an_error_with_its_line(mistake: tuple[str, str, int, str, str], tmp_path: Path) -> None:
    old, new, line, what, fix = mistake
    assert old in FUZZY
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": FUZZY.replace(old, new, 1)})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert (error.where, error.what) == (f"pipelines/mine/semantic/index.sql:{line}", what)
    assert fix in error.next_step


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("", (10.0, False, 1)),
        ("  train: false\n", (10.0, False, 1)),
        ("  train: true\n", (6.0, True, 1)),
        ("  train: {seed: 7}\n  at_least: 4\n", (4.0, True, 7)),
    ],
)
def test_fuzzy_threshold_default_depends_on_training(written: str, wanted: tuple[float, bool, int], tmp_path: Path) -> None:
    table = FUZZY.replace("  at_least: 6.5\n", written)
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": table})
    fuzzy = load_pipeline("mine", environ={}, folder=tmp_path).tables[0].fuzzy
    assert fuzzy is not None
    assert (fuzzy.at_least, fuzzy.train, fuzzy.seed) == wanted


def test_fuzzy_definition_changes_only_with_training(tmp_path: Path) -> None:
    definitions = []
    for number, more in enumerate(("", "largest_entity: 7\n", "  train: true\n", "  train: {seed: 2}\n")):
        table = FUZZY.replace("  at_least: 6.5\n", f"  at_least: 6.5\n{more}")
        write_files(tmp_path / str(number) / "pipelines" / "mine", {**FILES, "semantic/index.sql": table})
        (index,) = load_pipeline("mine", environ={}, folder=tmp_path / str(number)).tables
        definitions.append((definition_of(index), repr(index.fuzzy), index.largest_entity))
    assert [definition[2] for definition in definitions] == [100, 7, 100, 100]
    assert definitions[0][:2] == definitions[1][:2]
    assert len({definition[0] for definition in definitions}) == 3
    assert definitions[0][1].endswith("at_least=6.5)"), "as it was before weights could be trained: no table is rebuilt for it"


@pytest.mark.parametrize("written", ["fuzzy: {compare: {email: email}, block_on: [phone]}", "largest_entity: 5"])
def test_entity_settings_are_rejected_in_another_kind(written: str, tmp_path: Path) -> None:
    table = f"/*\nkeys: [id]\n{written}\n*/\nSELECT id, email, phone FROM raw.people"
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": table})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.what == f"{written.split(':')[0]} has no effect in a table of kind aggregate"


def test_check_without_splink_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": FUZZY})
    assert check_pipeline("mine", environ={}, folder=tmp_path).errors == ()
    monkeypatch.setattr(layers_module, "has_splink", lambda: False)
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.where == "pipelines/mine/semantic/index.sql:9"
    assert error.next_step.startswith("Run: pip install 'headrace[fuzzy]'")
    assert load_pipeline("mine", environ={}, folder=tmp_path).tables[0].fuzzy == Fuzzy(
        (Comparison("email", "email"), Comparison("phone_normalized", "phone"), Comparison("id", "exact")),
        (Block(("phone", "source")), Block(("email_normalized",))),
        6.5,
    ), "to look at a pipeline needs no Splink"


def test_lineage_of_an_entity_includes_compared_columns(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": FUZZY})
    traced = trace_lineage(load_pipeline("mine", environ={}, folder=tmp_path)).table(TableName("semantic", "index"))
    entity = traced.column("entity_id") if traced else None
    assert entity is not None
    assert [source.name for source in entity.sources] == ["email", "phone", "country", "id"]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_match_reports_an_error_with_its_line(mistake: tuple[str, str, int, str, str], tmp_path: Path) -> None:
    old, new, line, what, fix = mistake
    assert old in INDEX
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": INDEX.replace(old, new, 1)})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert (error.where, error.what) == (f"pipelines/mine/semantic/index.sql:{line}", what)
    assert fix in error.next_step


def test_entity_settings_are_read(tmp_path: Path) -> None:
    text = INDEX.replace("as: email}", "as: email, dots: false, max_records: 9}")
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "semantic/index.sql": text})
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    (table,) = pipeline.tables
    assert table.matches == (
        Match("email_normalized", "email", "email", email=EmailRules(dots=False), max_records=9),
        Match("phone_normalized", "phone", "phone", region_column="country"),
    )
    columns = readable_columns(table, ("source", "source_id", "email", "phone", "country", "updated_at"))
    assert columns[:6] == ("entity_id", "source", "source_id", "email", "email_normalized", "phone")
    assert columns[6:] == ("phone_normalized", "updated_at", "match_confidence", "previous_entity_ids", "unused_matches")
    traced = trace_lineage(pipeline).table(TableName("semantic", "index"))
    number = traced.column("phone_normalized") if traced else None
    assert number is not None
    assert [source.name for source in number.sources] == ["phone", "country"]
