"""The full text of errors in pipeline.yml: message, file and line, next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline

Checker = Callable[..., Check]
KEYS = (
    "topic, table, format, schema, partitions, retention, cleanup_policy, delete_retention, framing, partition_by, event_time, "
    "epoch_unit, max_record_bytes, output, commit_log, snapshots_for, generator"
)

# id: (text to replace, replacement, line of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, int, str, str]] = {
    "unknown key, close": (
        "topic: ",
        "topik: x\n    topic: ",
        6,
        'unknown key "topik"',
        'Did you mean "topic"? Fix the key',
    ),
    "unknown key, far": ("topic: ", "xyz: 1\n    topic: ", 6, 'unknown key "xyz"', f"Keys are: {KEYS}. Fix the key"),
    "framing of another format": (
        "format: json",
        "format: json\n    framing: confluent",
        9,
        "framing requires format: avro, not json",
        "Remove framing",
    ),
    "unknown key on top": ("trigger:", "triger:", 3, 'unknown key "triger"', 'Did you mean "trigger"? Fix the key'),
    "query of an unknown table": (
        "streams:",
        "queries:\n  How many?: SELECT count(*) FROM raw.charge\nstreams:",
        5,
        'the query reads "raw.charge", which is not a table of this pipeline',
        'Did you mean "raw.charges"? Fix the name',
    ),
    "query that is none": (
        "streams:",
        "queries:\n  How many?: DROP TABLE raw.charges\nstreams:",
        5,
        "a query must be one SELECT",
        "Write one SELECT for each question",
    ),
    "query with a mistake": (
        "streams:",
        "queries:\n  How many?: SELECT count(* FROM raw.charges\nstreams:",
        5,
        'not valid SQL: Expecting ), at "FROM"',
        "Fix the query",
    ),
    "query that is no text": (
        "streams:",
        "queries:\n  How many?: 5\nstreams:",
        5,
        '"How many?" must be text, not the number 5',
        'Write it as text (How many?: "SELECT count(*) FROM …")',
    ),
    "key twice": (
        "partitions: 3",
        "partitions: 3\n    partitions: 4",
        8,
        'duplicate key "partitions", first set in line 7',
        "Remove one of the two",
    ),
    "missing key": (
        "    topic: charges\n",
        "",
        5,
        '"charges" has no "topic"',
        "Add a line such as topic: charges-input",
    ),
    "empty key": ("topic: charges", "topic:", 5, '"charges" has no "topic"', "Add a line such as topic: charges-input"),
    "missing about": (
        "about: a test\n",
        "",
        1,
        'the document has no "about"',
        "Add a line such as about: what it does, in one sentence",
    ),
    "not text": (
        "about: a test",
        "about: 12",
        2,
        '"about" must be text, not the number 12',
        'Write it as text (about: "…")',
    ),
    "list for text": (
        "topic: charges",
        "topic: [a]",
        6,
        '"topic" must be text, not a list',
        'Write it as text (topic: "…")',
    ),
    "not a number": (
        "partitions: 3",
        "partitions: three",
        7,
        '"partitions" must be a whole number, not the text "three"',
        "Write a number from 1 to 10000",
    ),
    "a fraction": (
        "partitions: 3",
        "partitions: 3.5",
        7,
        '"partitions" must be a whole number, not the number 3.5',
        "Write a number from 1 to 10000",
    ),
    "number out of range": (
        "partitions: 3",
        "partitions: 0",
        7,
        '"partitions" must be from 1 to 10000, not 0',
        "Change the number",
    ),
    "variable that is no number": (
        "partitions: 3",
        "partitions: ${P:-three}",
        7,
        '"partitions" must be a whole number, not the text "three"',
        "Write a number from 1 to 10000",
    ),
    "not a list": (
        "partition_by: [days(created), country]",
        "partition_by: days(created)",
        12,
        '"partition_by" must be a list, not the text "days(created)"',
        "Write it as a list (partition_by: […])",
    ),
    "stream without keys": (
        "  charges:\n",
        "  others: 5\n  charges:\n",
        5,
        '"others" must be keys with values, not the number 5',
        "Write it as lines of key: value",
    ),
    "unset variable": (
        "topic: charges",
        "topic: ${TOPIC}",
        6,
        "the environment variable TOPIC is not set",
        "Set TOPIC, or write a default: ${TOPIC:-…}",
    ),
    "broken variable": (
        "topic: charges",
        "topic: ${1}",
        6,
        '"${1}" is not a valid variable',
        "Write ${NAME} or ${NAME:-default}, or $${ for a plain ${",
    ),
    "broken yaml": (
        "topic: charges",
        "topic: [charges",
        7,
        "not valid YAML: expected ',' or ']', but got ':'",
        "Fix the line",
    ),
    "tab": (
        "    topic:",
        "\ttopic:",
        6,
        "not valid YAML: found character '\\t' that cannot start any token",
        "Fix the line",
    ),
    "control character": (
        "a test",
        "a \x07 test",
        2,
        "not valid YAML: special characters are not allowed",
        "Remove the character",
    ),
    "other name than folder": (
        "name: mine",
        "name: yours",
        1,
        'the name "yours" differs from the folder "mine"',
        "Give both the same name",
    ),
    "bad name": (
        "name: mine",
        "name: My-Pipeline",
        1,
        '"My-Pipeline" is not a valid name',
        "Use lower-case letters, digits and _, with a letter first",
    ),
    "bad stream name": (
        "  charges:\n",
        "  Charges:\n",
        5,
        '"Charges" is not a valid stream name',
        "Use lower-case letters, digits and _, with a letter first",
    ),
    "trigger without unit": (
        "trigger: 10s",
        "trigger: 10",
        3,
        '"trigger" must be text, not the number 10',
        "Write it as text (trigger: 10s)",
    ),
    "trigger of another unit": (
        "trigger: 10s",
        "trigger: 10 weeks",
        3,
        '"10 weeks" is not a duration',
        "Write a duration such as 500ms, 10s or 1m",
    ),
    "bad topic": (
        "topic: charges",
        "topic: all charges",
        6,
        '"all charges" is not a valid topic name',
        "Use letters, digits, dots, _ and -, at most 249 characters",
    ),
    "unknown format": (
        "format: json",
        "format: jsno",
        8,
        'invalid value "jsno" for "format"',
        'Did you mean "json"? Fix the value',
    ),
    "unknown unit": (
        "unit: s",
        "unit: ns",
        11,
        'invalid value "ns" for "unit"',
        'Did you mean "s"? Fix the value',
    ),
    "bad table": (
        "raw.charges",
        "charges",
        10,
        '"charges" is not a valid table name',
        "Write namespace.table, or two namespaces and a table, each of lower-case letters, digits and _, with a letter first",
    ),
    "reserved namespace": (
        "raw.charges",
        "metadata.charges",
        10,
        'the namespace "metadata" is reserved for Headrace\'s own tables',
        "Choose another namespace",
    ),
    "missing schema": (
        "charge.sql",
        "charg.sql",
        9,
        'not found: file "schemas/charg.sql" in the pipeline\'s folder',
        "Create it or fix the path",
    ),
    "schema outside": (
        "schemas/charge.sql",
        "../other/charge.sql",
        9,
        '"../other/charge.sql" is outside the pipeline\'s folder',
        "Copy the file into the folder",
    ),
    "schema of another kind": (
        "schemas/charge.sql",
        "pipeline.yml",
        9,
        '"pipeline.yml" is neither .sql nor .avsc',
        "Write the schema as DDL (.sql) or as Avro (.avsc)",
    ),
    "avro without avsc": (
        "format: json",
        "format: avro",
        9,
        'format avro needs an .avsc file, and "schemas/charge.sql" is not one',
        "Write the schema as Avro in an .avsc file",
    ),
    "event time clashes": (
        "column: happened",
        "column: Created",
        11,
        'event_time: columns "created" and "Created" differ only in case',
        "Choose another name",
    ),
    "event time reserved": (
        "column: happened",
        "column: kafka_timestamp",
        11,
        'event_time: column name "kafka_timestamp" is reserved for Headrace\'s own column',
        "Choose another name",
    ),
    "event time from text": (
        "from: at",
        "from: id",
        11,
        'event_time: "id" is string, not an integer',
        "Integer columns are: at. Choose one of them",
    ),
    "event time from nothing": (
        "from: at",
        "from: when",
        11,
        'event_time: "when" is not a column of the schema',
        "Integer columns are: at. Choose one of them",
    ),
    "partition by no column": (
        "days(created)",
        "days(craeted)",
        12,
        '"craeted" is not a column of this table',
        'Did you mean "created"? Fix the name',
    ),
    "unknown transform": (
        "days(created)",
        "day(created)",
        12,
        'unknown transform "day"',
        'Did you mean "days"? Fix the name',
    ),
    "transform does not fit": (
        "days(created)",
        "hours(id)",
        12,
        'hours does not support "id", which is string',
        "Supported transforms: identity, bucket, truncate. Change the transform",
    ),
    "partition by a list": (
        "country]",
        "tags]",
        12,
        'identity does not support "tags", which is array<string>',
        "Supported transforms: none. Change the transform",
    ),
    "bucket without number": (
        "country]",
        "bucket(country)]",
        12,
        'wrong arguments of bucket in "bucket(country)"',
        "Write bucket(16, country)",
    ),
    "bucket without quotes": (
        "country]",
        "bucket(16, country)]",
        12,
        'unbalanced bracket in "bucket(16"',
        'Quote a transform that contains a comma: "bucket(16, id)"',
    ),
    "bucket of none": (
        "country]",
        '"bucket(0, country)"]',
        12,
        'the number in "bucket(0, country)" must be from 1 to 2147483647',
        "Change the number",
    ),
    "no transform": (
        "country]",
        "country + 1]",
        12,
        '"country + 1" is not a valid transform',
        "Write column, hours(column) or bucket(16, column)",
    ),
    "the same twice": (
        "country]",
        "hours(created)]",
        12,
        '"hours(created)" and "days(created)" are redundant',
        "Remove one of them",
    ),
    "missing generator": (
        "generators/charges.py",
        "generators/none.py",
        13,
        'not found: file "generators/none.py" in the pipeline\'s folder',
        "Create it or fix the path",
    ),
    "generator without a file": (
        "generator: generators/charges.py",
        "generator: {every: 500ms}",
        13,
        '"generator" has no "file"',
        "Add a line such as file: generators/charges.py",
    ),
    "generator with an unknown key": (
        "generator: generators/charges.py",
        "generator: {file: generators/charges.py, evry: 500ms}",
        13,
        'unknown key "evry"',
        'Did you mean "every"? Fix the key',
    ),
    "generator that is a number": (
        "generator: generators/charges.py",
        "generator: 5",
        13,
        '"generator" must be text, not the number 5',
        'Write it as text (generator: "…")',
    ),
    "interval without unit": (
        "generator: generators/charges.py",
        "generator: {file: generators/charges.py, every: 500}",
        13,
        '"every" must be text, not the number 500',
        "Write it as text (every: 500ms)",
    ),
    "interval that is no time": (
        "generator: generators/charges.py",
        "generator: {file: generators/charges.py, every: often}",
        13,
        '"often" is not a duration',
        "Write a duration such as 500ms, 10s or 1m",
    ),
    "interval of nothing": (
        "generator: generators/charges.py",
        "generator: {file: generators/charges.py, every: 0s}",
        13,
        '"every" must be longer than 0',
        "Write 500ms, 10s or 1m",
    ),
}
SECOND_STREAM = """\
  refunds:
    topic: refunds
    format: json
    schema: schemas/charge.sql
    table: raw.refunds
"""


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_pipeline_error_has_its_line_and_next_step(check: Checker, mistake: tuple[str, str, int, str, str]) -> None:
    old, new, line, what, fix = mistake
    result = check(old, new)
    expected = f"pipelines/mine/pipeline.yml:{line}: {what}\n{fix}, then run: headrace check mine"
    assert [str(error) for error in result.errors] == [expected]
    assert result.pipeline is None


def test_valid_pipeline_has_no_errors(check: Checker) -> None:
    result = check()
    assert result.errors == ()
    assert result.pipeline is not None


@pytest.mark.parametrize(
    ("old", "new", "line", "shared"),
    [
        ("table: raw.refunds", "table: raw.charges", 18, "table, raw.charges"),
        ("topic: refunds", "topic: charges", 15, "topic, charges"),
        ("topic: refunds", "topic: refunds\n    output: /out/", 16, "output, /out"),
        ("topic: refunds", "topic: refunds\n    commit_log: /out", 16, "commit_log, /out"),
    ],
)
def test_streams_must_not_share_outputs(check: Checker, old: str, new: str, line: int, shared: str) -> None:
    first = "    generator: generators/charges.py\n"
    place = new.rpartition("\n")[2] if "\n" in new else ""
    without_generator = f"{place}\n" if place else first
    result = check(first, without_generator + SECOND_STREAM.replace(old, new))
    assert [str(error) for error in result.errors] == [
        f'pipelines/mine/pipeline.yml:{line}: streams "charges" and "refunds" have the same {shared}\n'
        f"Give each stream its own {shared.partition(',')[0]}, then run: headrace check mine"
    ]


def test_partition_field_must_not_have_the_name_of_a_column(check: Checker) -> None:
    check("country STRING", "created_day STRING, country STRING", file="schemas/charge.sql")
    assert [str(error) for error in check().errors] == [
        'pipelines/mine/pipeline.yml:12: the partition field "created_day" of "days(created)" has the name of a column\n'
        "Rename or remove the column, then run: headrace check mine"
    ]


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("def event(random, now): ...\n", 1, 'a generator needs a function "events"'),
        ("x = 1\ndef events(seed): ...\n", 2, "events must take (random, now), not (seed)"),
    ],
)
def test_generator_is_parsed_and_not_run(check: Checker, pipeline: Path, source: str, line: int, what: str) -> None:
    (pipeline / "generators/charges.py").write_text("raise SystemExit\n" + source)
    fix = "Write def events(random: Random, now: Callable[[], datetime]) -> Iterator[dict[str, object]]"
    shown_line = line + 1 if line > 1 else line
    assert [str(error) for error in check().errors] == [
        f"pipelines/mine/generators/charges.py:{shown_line}: {what}\n{fix}, then run: headrace check mine"
    ]


@pytest.mark.parametrize(
    ("parameters", "what", "fix"),
    [
        ("random, now, problem", '"problem"', 'Did you mean "problems"?'),
        ("random, now, *, pace=1", '"pace"', "Further parameters are: problems, start."),
    ],
)
def test_generator_rejects_unknown_parameters(check: Checker, pipeline: Path, parameters: str, what: str, fix: str) -> None:
    (pipeline / "generators/charges.py").write_text(f"def events({parameters}): ...\n")
    assert [str(error) for error in check().errors] == [
        f"pipelines/mine/generators/charges.py:1: unknown parameter {what} of events\n"
        f"{fix} Fix the name, then run: headrace check mine"
    ]


@pytest.mark.parametrize("parameters", ["random, now, problems, start", "random, now, *, start=0", "random, now, /, problems"])
def test_generator_accepts_problems_and_start(check: Checker, pipeline: Path, parameters: str) -> None:
    (pipeline / "generators/charges.py").write_text(f"def events({parameters}): ...\n")
    assert check().errors == ()


def test_invalid_python_in_a_generator_has_its_line(check: Checker, pipeline: Path) -> None:
    (pipeline / "generators/charges.py").write_text("x = 1\ndef events(:\n")
    (error,) = check().errors
    assert error.where == "pipelines/mine/generators/charges.py:2"
    assert error.what.startswith("not valid Python: ")


def test_empty_and_binary_files_are_rejected(check: Checker, pipeline: Path) -> None:
    (pipeline / "pipeline.yml").write_text("# nothing yet\n")
    assert [error.what for error in check().errors] == ["the file is empty"]
    (pipeline / "pipeline.yml").write_bytes(b"name: mine\nabout: \xff\n")
    (error,) = check_pipeline("mine", environ={}, folder=pipeline.parent.parent).errors
    assert (error.where, error.what) == ("pipelines/mine/pipeline.yml:2", "the file is not UTF-8 text")


def test_errors_are_sorted_by_file_and_line(check: Checker, pipeline: Path) -> None:
    (pipeline / "schemas/charge.sql").write_text("id VARCHAR(10),\nid INT,\nkafka_offset BIGINT\n")
    (pipeline / "generators/charges.py").write_text("")
    (pipeline / "pipeline.yml").write_text(
        (pipeline / "pipeline.yml").read_text().replace("trigger: 10s", "trigger: often").replace("format: json", "format: xml")
    )
    assert [error.where for error in check().errors] == [
        "pipelines/mine/pipeline.yml:3",
        "pipelines/mine/pipeline.yml:8",
        "pipelines/mine/schemas/charge.sql:1",
        "pipelines/mine/schemas/charge.sql:2",
        "pipelines/mine/schemas/charge.sql:3",
        "pipelines/mine/generators/charges.py:1",
    ]
