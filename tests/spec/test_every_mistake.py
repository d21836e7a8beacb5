"""A check of a folder with many errors reports each of them once, without follow-on errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline
from tests.support.folders import write_files

SCHEMA = "id STRING NOT NULL, amount BIGINT, at TIMESTAMP, email STRING"
GOOD = {
    "pipeline.yml": """\
name: mine
about: A shop.
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
""",
    "schemas/order.sql": SCHEMA,
}
# A comment `! text` at the end of a line is an error that the check must report for the line. Several are separated by `!`.
PLANTED = {
    "pipeline.yml": """\
name: mine
abuot: A shop.                     # ! unknown key "abuot"
about: A shop.
trigger: soon                      # ! is not a duration
streams:
  orders:
    topic: orders
    format: jsson                  # ! invalid value "jsson" for "format"
    schema: schemas/order.sql
    table: raw.orders
    partitions: 0                  # ! "partitions" must be from
    epoch_unit: weeks              # ! invalid value "weeks" for "epoch_unit"
    retention: 0 days              # ! "retention" must be longer than 0
    delete_retention: a while      # ! "a while" is not a duration
    cleanup_policy: remove         # ! invalid value "remove" for "cleanup_policy"
    colour: red                    # ! unknown key "colour"
  payments:
    topic: payments
    format: json
    schema: schemas/payment.sql
    table: raw.payments
  visits:
    topic: visits
    format: json
    schema: schemas/visit.sql
    table: raw.visits
    event_time:
      column: id                   # ! event_time:
      from: name                   # ! event_time: "name" is string
      unit: days                   # ! invalid value "days" for "unit"
    partition_by:
      - hours(amount)
  carts:
    topic: carts
    format: json
    schema: schemas/cart.sql
    table: raw.carts
    partition_by:
      - years(id)                  # ! years does not support "id"
      - sometimes(at)              # ! unknown transform
      - lost                       # ! "lost" is not a column
  baskets: {topic: baskets, format: json, schema: schemas/cart.sql, table: raw.baskets}
  twins:
    topic: baskets                 # ! have the same topic
    format: json
    schema: schemas/cart.sql
    table: raw.baskets             # ! have the same table
serving:
  postgress: {}                    # ! unknown key "postgress"
  postgres:
    totals: {from: marts.nothing, ddl: serving/none.sql}  # ! not a layer table ! not found: file
    of_broken: {from: marts.broken, ddl: serving/gone.sql}  # ! not found: file
people:
  streams:
    nobody: {email: email}         # ! "nobody" is not a stream
    baskets:
      email: mail                  # ! "mail" is not a column
      phone: fone                  # ! "fone" is not a column
      ids: {shop: number}          # ! "number" is not a column
    orders: {email: whatever}
queries:
  how many: SELECT count(*) FROM raw.nothing, marts.gone  # ! reads "raw.nothing" ! reads "marts.gone"
  broken: SELECT count(* FROM raw.carts                   # ! not valid SQL
  of a broken table: SELECT count(*) FROM raw.orders, marts.broken
""",
    "schemas/order.sql": SCHEMA,
    "schemas/visit.sql": "id STRING, name STRING, amount BIGINT",
    "schemas/cart.sql": SCHEMA,
    "schemas/payment.sql": """\
CREATE TABLE payments (
  id STRING,
  id INT,                          -- ! id
  amount MONEY,                    -- ! unknown type "MONEY"
  price DECIMAL(90, 2),            -- ! is not a valid decimal type
  items ARRAY STRING,              -- ! expected "<"
  42 INT,                          -- ! expected a name
  PRIMARY KEY (id),                -- ! PRIMARY KEY is not supported
  tags MAP<INT, STRING>,           -- ! keys must be STRING
  at TIMESTAMP WITHOUT TIME ZONE,  -- ! is not supported
  kafka_offset BIGINT              -- ! kafka_offset
)
""",
    "staging/baskets.sql": """\
/*
keys: [id, lost_key]               # ! keys "lost_key"
sequence_by: [at, later]           # ! sequence_by "later"
except_column_list: [gone]         # ! except_column_list "gone"
expect:
  a is there: a IS NOT NULL        # ! "a" is not a column
  b is there: b IS NOT NULL AND c > 1  # ! "b" is not a column ! "c" is not a column
  it is SQL: amount >              # ! is not valid SQL
*/
SELECT id, amount, at FROM raw.baskets
""",
    "staging/columns.sql": """\
SELECT id,
  amuont,                          -- ! column "amuont"
  c.emial,                         -- ! column "emial"
  att AS t                         -- ! column "att"
FROM raw.baskets AS c
WHERE wrong = 1                    -- ! column "wrong"
""",
    "staging/settings.sql": """\
/*
kind: sometimes                    # ! invalid value "sometimes" for "kind"
keyz: [id]                         # ! unknown key "keyz"
watermark: {column: 5, delay: soon}  # ! "column" must be text ! is not a duration
expect:
  first: {on_failure: explode}     # ! has no "that" ! invalid value "explode" for "on_failure"
  second: {that: 5}                # ! "that" must be text
partition_by: [sometimes(at), "days("]  # ! unknown transform ! unbalanced bracket
*/
SELECT id FROM carts, raw.baskets, orders  -- ! "carts" is not namespace.table ! "orders" is not namespace.table
""",
    "staging/together.sql": """\
/*
kind: append
keys: [id]                         # ! can't have keys
valid_from: at                     # ! valid_from has no effect
oldest_by: at                      # ! oldest_by has no effect
*/
SELECT id, at FROM raw.baskets
""",
    "marts/broken.sql": "SELECT id FROM raw.baskets WHERE (  -- ! not valid SQL",
    "marts/of_broken.sql": "SELECT anything FROM marts.broken",
    "marts/of_orders.sql": "SELECT anything FROM raw.orders",
    "marts/unknown.sql": """\
SELECT id FROM raw.nothing         -- ! raw.nothing is not a table
JOIN marts.gone USING (id)         -- ! marts.gone is not a table
""",
    "marts/here.sql": "SELECT id FROM marts.there  -- ! circular dependency",
    "marts/there.sql": "SELECT id FROM marts.here",
    "marts/joined.py": '''\
from headrace import table


@table(keys=["id"])
def joined(baskets, nothing, gone):  # ! "nothing" is not a table ! "gone" is not a table
    """A table."""
    return baskets
''',
}


def check(folder: Path, files: dict[str, str]) -> Check:
    write_files(folder / "pipelines/mine", files)
    return check_pipeline("mine", environ={}, folder=folder)


def assert_reported(folder: Path, files: dict[str, str]) -> None:
    unexpected, missing = [str(error).partition("\n")[0] for error in check(folder, files).errors], []
    for name, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            for words in line.split(" ! ")[1:]:
                where = re.compile(rf"pipelines/mine/{re.escape(name)}:{number}(:\d+)?: ")
                matching = [error for error in unexpected if where.match(error) and words.strip() in error]
                if matching:
                    unexpected.remove(matching[0])
                else:
                    missing.append(f"{name}:{number}: {words.strip()}")
    assert (missing, unexpected) == ([], [])


def test_check_reports_every_planted_error_once(tmp_path: Path) -> None:
    assert_reported(tmp_path, PLANTED)


# Errors that must not hide others of the same decorator, setting or file.
HIDING = {
    "pipeline.yml": """\
name: mine
about: A shop.
sources:
  http: {file: sources/webhooks.py, port: 99999}        # ! "port" must be from
  postgres:
    database: A shop                                    # ! is not a valid name
    connectors: connectors
    stage: stage.yaml
    by_hand: {change: UPDATE a SET b = 1, see: SELECT 1 FROM marts.gone}  # ! reads "marts.gone"
streams:
  people: {topic: people, format: json, schema: schemas/person.sql, table: raw.people}
  events:
    topic: events
    format: json
    schema: schemas/broken.sql
    table: raw.events
    event_time: {column: time, from: at, unit: fortnights}  # ! invalid value "fortnights" for "unit"
serving:
  postgres:
    known: {from: marts.right, ddl: serving/known.sql}
queries:
  how many: SELECT count(*) FROM marts.nobody           # ! reads "marts.nobody"
""",
    "connectors/source.template.json": '{"name": "a", "config": {"a": "${DATABASE_HOST}"}}',
    "stage.yaml": "tables: {}",
    "schemas/person.sql": "id STRING, name STRING, at TIMESTAMP",
    "schemas/broken.sql": "at TIME_OF_DAY  -- ! unknown type",
    "serving/known.sql": 'CREATE TABLE known (di TEXT, PRIMARY KEY (id))  -- ! "id" of the primary key',
    "sources/webhooks.py": """\
from headrace import receive, webhook


@receive("log", stream="persons")  # ! "log" is not a valid path ! not found: stream "persons"
def log(now): ...


@webhook("/a", signatures=["strype"], secret="a b", streams=["one"], other="two")  # ! "strype" ! secret ! "one" ! "two"
def hook(payload, delivery): ...
""",
    "marts/right.sql": "/*\nkeys: [id]\nsequence_by: at\n*/\nSELECT id, at FROM raw.people",
    "marts/wrong.sql": """\
/*
kind: entities
keys: [id]
sequence_by: at
oldest_by: at
match: {same_name: {from: name, as: exact}}
fuzzy:
  compare: {name: nam}             # ! invalid value "nam" for "name"
  block_on: []                     # ! block_on has no blocks
  at_least: much                   # ! "at_least" must be a number
  train: maybe                     # ! "train" must be true or false
*/
SELECT id, name, at FROM raw.people
""",
}


def test_check_reports_errors_that_follow_others(tmp_path: Path) -> None:
    assert_reported(tmp_path, HIDING)


def test_check_reports_stage_tables_of_a_broken_source(tmp_path: Path) -> None:
    stage = {"stage.yaml": "tables: {nobody: {about: None.}}  # ! nobody"}
    assert_reported(tmp_path, {**HIDING, **stage, "pipeline.yml": re.sub(" ! reads .*", "", HIDING["pipeline.yml"])})


def test_check_reports_a_cycle_once(tmp_path: Path) -> None:
    tables = {"a/one.sql": "SELECT id FROM a.two", "a/two.sql": "SELECT id FROM a.three", "a/three.sql": "SELECT id FROM a.one"}
    (error,) = check(tmp_path, {**GOOD, **tables}).errors
    assert "circular dependency: a.one → a.two → a.three → a.one" in error.what


@pytest.mark.parametrize("missing", ["name", "about", "streams"])
def test_check_reports_other_files_despite_a_missing_key(tmp_path: Path, missing: str) -> None:
    lines = GOOD["pipeline.yml"].splitlines(keepends=True)
    remaining = [line for line in lines if not line.startswith(missing) and not (missing == "streams" and line.startswith(" "))]
    tables = {"a/one.sql": "SELECT id FROM raw.orders WHERE (", "a/two.sql": "SELECT id FROM raw.orders"}
    errors = check(tmp_path, {**GOOD, "pipeline.yml": "".join(remaining), **tables}).errors
    assert [error.where.split("/")[-1] for error in errors] == ["pipeline.yml:1", errors[1].where.split("/")[-1]]
    assert errors[1].where.startswith("pipelines/mine/a/one.sql:1")
