"""The settings of tables that apply changes of a database, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.definition import definition_of
from headrace.build.growth import widest
from headrace.build.legacy_definition import legacy_digest
from headrace.iceberg.schema.columns import iceberg_schema, spec_columns
from headrace.spec import check_pipeline, load_pipeline
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Array, Column, Primitive, Struct
from headrace.spec.sql.lineage import trace_lineage
from tests.support.folders import write_files

TABLE = """/*
keys: [id]
sequence_by: [lsn, nr]
apply_as_deletes: op = 'd'
apply_as_truncates: op = 't'
unchanged: untold
stored_as_scd_type: 2
valid_from: at
except_column_list: [op, untold]
*/
SELECT * FROM raw.events
"""
FILES = {
    "pipeline.yml": """name: mine
about: Changes.
streams:
  events: {topic: events, format: json, schema: schemas/event.sql, table: raw.events}
""",
    "schemas/event.sql": "id LONG, lsn LONG, nr INT, op STRING, at TIMESTAMP, untold ARRAY<STRING>",
    "shape/rows.sql": TABLE,
}
# id: (text to replace, replacement, line of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, int, str, str]] = {
    "no time": (
        "valid_from: at\n",
        "",
        3,
        "a history with several columns in sequence_by needs valid_from",
        "Add valid_from: with the column that holds the start of a version",
    ),
    "a time without versions": (
        "stored_as_scd_type: 2\n",
        "",
        7,
        "valid_from has no effect in a table of kind upsert",
        "Remove it, or add stored_as_scd_type: 2",
    ),
    "an unknown sequence": ("[lsn, nr]", "[lsn, nrr]", 3, 'sequence_by "nrr" is not a column of this table', "Fix the name"),
    "an unknown time": ("valid_from: at", "valid_from: art", 8, 'valid_from "art" is not a column of this table', '"at"'),
    "an unknown list": (
        "unchanged: untold",
        "unchanged: told",
        6,
        'unchanged "told" is not a column of this table',
        '"untold"',
    ),
    "an unknown column in a truncate": (
        "op = 't'",
        "opp = 't'",
        5,
        'apply_as_truncates: "opp" is not a column of this table',
        'Did you mean "op"?',
    ),
    "no condition": ("op = 't'", "op = = 't'", 5, "apply_as_truncates is not valid SQL", "Write a SQL condition"),
    "a time that is not kept": (
        "except_column_list: [op,",
        "except_column_list: [at, op,",
        9,
        'except_column_list can\'t contain "at", which identifies rows',
        "Remove it from except_column_list",
    ),
    "a part of the sequence that is not kept": (
        "except_column_list: [op,",
        "except_column_list: [nr, op,",
        9,
        'except_column_list can\'t contain "nr", which identifies rows',
        "Remove it from except_column_list",
    ),
    "truncates of an aggregate": (
        "sequence_by: [lsn, nr]\napply_as_deletes: op = 'd'\napply_as_truncates: op = 't'\nunchanged: untold\n"
        "stored_as_scd_type: 2\nvalid_from: at\nexcept_column_list: [op, untold]",
        "apply_as_truncates: op = 't'",
        3,
        "apply_as_truncates has no effect in a table of kind aggregate",
        "Remove apply_as_truncates",
    ),
    "a name of the engine's": (
        "SELECT *",
        "SELECT *, 1 AS _carried",
        1,
        'column name "_carried" is reserved: Headrace adds this column',
        "Rename or remove the column",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_change_settings_report_an_error_with_its_line(mistake: tuple[str, str, int, str, str], tmp_path: Path) -> None:
    old, new, line, what, fix = mistake
    assert old in TABLE
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "shape/rows.sql": TABLE.replace(old, new, 1)})
    (error, *_) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.where == f"pipelines/mine/shape/rows.sql:{line}"
    assert error.what.startswith(what)
    assert fix in error.next_step


def test_change_settings_are_read(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", FILES)
    assert check_pipeline("mine", environ={}, folder=tmp_path).errors == ()
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    (table,) = pipeline.tables
    assert (table.sequence_by, table.versioned_by) == (("lsn", "nr"), "at")
    assert (table.apply_as_truncates, table.unchanged) == ("op = 't'", "untold")
    traced = trace_lineage(pipeline).table(TableName("shape", "rows"))
    start = traced.column("valid_from") if traced else None
    assert start is not None
    assert [source.name for source in start.sources] == ["at"]


def test_sequence_by_has_one_definition_as_text_or_list(tmp_path: Path) -> None:
    """Tables that were built before a sequence could be a list are not rebuilt."""
    digests = set()
    for number, sequence in enumerate(("lsn", "[lsn]")):
        text = f"/*\nkeys: [id]\nsequence_by: {sequence}\n*/\nSELECT id, lsn FROM raw.events"
        write_files(tmp_path / str(number) / "pipelines" / "mine", {**FILES, "shape/rows.sql": text})
        (table,) = load_pipeline("mine", environ={}, folder=tmp_path / str(number)).tables
        digests.add((legacy_digest(table), definition_of(table).digest))
    assert len(digests) == 1
    assert {legacy for legacy, _ in digests} == {"0eb18497af42320c"}


def test_raw_table_has_what_its_schema_names_and_what_came_since() -> None:
    least = (
        Column("after", Struct((Column("id", Primitive("int"), required=True),))),
        Column("kafka_offset", Primitive("long")),
    )
    wider = Struct((Column("id", Primitive("long"), required=True), Column("tags", Array(Primitive("string")))))
    have = (
        Column("kafka_offset", Primitive("long")),
        Column("after", wider),
        Column("ts_ns", Primitive("long"), required=True),
    )
    assert spec_columns(iceberg_schema(have)) == have
    assert widest(least, have) == (
        Column("after", wider),
        Column("kafka_offset", Primitive("long")),
        Column("ts_ns", Primitive("long")),
    )


def test_features_table_rejects_rebuild_on(tmp_path: Path) -> None:
    text = """/*
keys: [id]
window: {partition_by: [op], order_by: at, range: 1 hour}
rebuild_on: {shape.rows: [id]}
*/
SELECT e.id, e.op, e.at, count(*) OVER w AS events
FROM raw.events e LEFT JOIN shape.rows r ON r.id = e.id
WINDOW w AS (PARTITION BY e.op ORDER BY e.at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)"""
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "shape/rolling.sql": text})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.what == "a table of kind features can't rebuild individual rows"
    assert "Remove rebuild_on" in error.next_step


def test_query_over_a_broken_table_is_not_an_error(tmp_path: Path) -> None:
    pipeline_yml = FILES["pipeline.yml"] + "queries:\n  How many?: SELECT count(*) FROM shape.rows\n"
    files = {**FILES, "pipeline.yml": pipeline_yml, "shape/rows.sql": TABLE.replace("keys:", "key:")}
    write_files(tmp_path / "pipelines" / "mine", files)
    errors = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert errors
    assert all("rows.sql" in str(error) for error in errors), errors
