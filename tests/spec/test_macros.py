"""Macro expansion with brackets and names, and errors with their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from headrace.build.definition import definition_of
from headrace.errors import SpecError
from headrace.spec import Check, check_pipeline, load_pipeline
from headrace.spec.loading.macros import parse_macros
from headrace.spec.loading.scaffold import copy_pipeline
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.problems import Place, Problems
from headrace.spec.sql.lineage import Field, trace_lineage
from headrace.spec.sql.macro_expansion import LARGEST_BODY, Macros
from headrace.spec.sql.source_map import locate
from tests.spec.test_every_mistake import assert_reported
from tests.support.folders import write_files

PLACE = Place("macros.sql", "mine")
FILES = {
    "pipeline.yml": """\
name: mine
about: A shop.
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
""",
    "schemas/order.sql": "id STRING NOT NULL, amount BIGINT, at TIMESTAMP, email STRING, tags ARRAY<STRING>",
}


def macros_of(text: str) -> Macros:
    problems = Problems()
    macros = parse_macros(text, place=PLACE, problems=problems)
    assert [str(error) for error in problems.errors] == []
    return macros


def expand(definitions: str, sql: str) -> str:
    errors: list[SpecError] = []
    expanded = macros_of(definitions).expand(
        sql, refuse=lambda what, at, fix: PLACE.error(what, line=at, fix=fix), errors=errors
    )
    assert [str(error) for error in errors] == []
    assert expanded is not None
    return expanded.text


def load(folder: Path, files: dict[str, str]) -> Pipeline:
    write_files(folder / "pipelines/mine", {**FILES, **files})
    return load_pipeline("mine", environ={}, folder=folder)


def check(folder: Path, files: dict[str, str]) -> Check:
    write_files(folder / "pipelines/mine", {**FILES, **files})
    return check_pipeline("mine", environ={}, folder=folder)


def only_table(pipeline: Pipeline) -> LayerTable:
    (table,) = pipeline.tables
    return table


EXPANSIONS = {
    "a call": ("CREATE MACRO f(a) AS trim(a)", "SELECT f(x)", "SELECT trim(x)"),
    "in any case": ("create macro f(a) as trim(A);", "SELECT F(x)", "SELECT trim(x)"),
    "without parameters": ("CREATE MACRO none_of() AS array('', 'n/a')", "SELECT none_of ( )", "SELECT array('', 'n/a')"),
    "an argument that is used twice": ("CREATE MACRO f(a) AS IF(a = '', NULL, a)", "SELECT f(x)", "SELECT IF(x = '', NULL, x)"),
    "an argument with an operator": ("CREATE MACRO f(a) AS a * 2", "SELECT f(x + 1)", "SELECT (x + 1) * 2"),
    "an argument that is a whole one there too": ("CREATE MACRO f(a) AS abs(a)", "SELECT f(x + 1)", "SELECT abs(x + 1)"),
    "a negative argument": ("CREATE MACRO f(a) AS 1 - a", "SELECT f(-x)", "SELECT 1 - (-x)"),
    "an argument in brackets": ("CREATE MACRO f(a) AS a * 2", "SELECT f((x + 1))", "SELECT (x + 1) * 2"),
    "a path": ("CREATE MACRO f(a) AS a || ''", "SELECT f(o.customer.name)", "SELECT o.customer.name || ''"),
    "NOT before an argument": ("CREATE MACRO f(a) AS NOT a", "SELECT f(x OR y)", "SELECT NOT (x OR y)"),
    "NOT in an argument": (
        "CREATE MACRO f(a) AS a = b(a); CREATE MACRO b(c) AS c",
        "SELECT f(NOT (x))",
        "SELECT (NOT (x)) = (NOT (x))",
    ),
    "a body with an operator": ("CREATE MACRO f(a, b) AS a + b", "SELECT 2 * f(x, y)", "SELECT 2 * (x + y)"),
    "a body that is a whole argument": ("CREATE MACRO f(a) AS a + 1", "SELECT abs(f(x))", "SELECT abs(x + 1)"),
    "a body that is a whole condition": (
        "CREATE MACRO f(a) AS a > 1 OR a < 0",
        "SELECT 1 WHERE f(x)",
        "SELECT 1 WHERE x > 1 OR x < 0",
    ),
    "a body with OR before AND": ("CREATE MACRO f(a) AS a > 1 OR a < 0", "WHERE f(x) AND y", "WHERE (x > 1 OR x < 0) AND y"),
    "a body that is a parameter": ("CREATE MACRO f(a) AS a", "SELECT f(NOT x) IS NULL", "SELECT (NOT x) IS NULL"),
    "a body in BETWEEN": ("CREATE MACRO f(a) AS a AND a", "WHERE x BETWEEN 1 AND f(y)", "WHERE x BETWEEN 1 AND (y AND y)"),
    "a field of a body": ("CREATE MACRO f(a) AS a + 1", "SELECT f(x).y", "SELECT (x + 1).y"),
    "a field of an argument": ("CREATE MACRO f(a) AS a.b", "SELECT f(first(x)), f(x || y)", "SELECT first(x).b, (x || y).b"),
    "after BOTH": ("CREATE MACRO f(a) AS lower(a)", "SELECT trim(BOTH f(x) FROM y)", "SELECT trim(BOTH lower(x) FROM y)"),
    "in an argument of itself": ("CREATE MACRO f(a) AS a + 1", "SELECT f(f(x))", "SELECT (x + 1) + 1"),
    "in an argument of another function": ("CREATE MACRO f(a) AS a + 1", "SELECT pow(f(x), f(y))", "SELECT pow(x + 1, y + 1)"),
    "of one another, in any order": (
        "CREATE MACRO f(a) AS g(a) || g('é'); CREATE MACRO g(b) AS lower(trim(b))",
        "SELECT f(x)",
        "SELECT lower(trim(x)) || lower(trim('é'))",
    ),
    "fields, aliases, types and functions that are called like a parameter": (
        "CREATE MACRO f(date, trim) AS struct(a_of(date).date AS date, CAST(trim AS DATE) AS x, trim(date));"
        "CREATE MACRO a_of(x) AS x",
        "SELECT f(y, z)",
        "SELECT struct(y.date AS date, CAST(z AS DATE) AS x, trim(y))",
    ),
    "a lambda variable that an argument has": (
        "CREATE MACRO f(xs, needle) AS filter(xs, x -> x = needle)",
        "SELECT f(tags, x), f(tags, y)",
        "SELECT filter(tags, x_1 -> x_1 = x), filter(tags, x -> x = y)",
    ),
    "lambda variables in macros in lambdas": (
        "CREATE MACRO f(xs) AS transform(xs, x -> g(xs, X)); CREATE MACRO g(ys, y) AS exists(ys, x -> x.x = y AND isnull(x))",
        "SELECT f(tags)",
        "SELECT transform(tags, x -> exists(tags, x_1 -> x_1.x = X AND isnull(x_1)))",
    ),
    "a lambda's variable as an argument": (
        "CREATE MACRO f(a) AS lower(a)",
        "SELECT transform(tags, (t, i) -> f(t) || i)",
        "SELECT transform(tags, (t, i) -> lower(t) || i)",
    ),
    "a name that sqlglot knows as a function": (
        "CREATE MACRO safe_divide(a, b, otherwise) AS coalesce(try_divide(a, b), otherwise)",
        "SELECT safe_divide(x, y, 0)",
        "SELECT coalesce(try_divide(x, y), 0)",
    ),
    "texts and names in quotes stay": (
        "CREATE MACRO f(a) AS concat('a f(a)', \"a\", a)",
        "SELECT f(`my x`), 'f(x)', `f`, t.f, t.f(x), f -- f(x)\n, x AS f /* f(x) */",
        "SELECT concat('a f(a)', \"a\", `my x`), 'f(x)', `f`, t.f, t.f(x), f -- f(x)\n, x AS f /* f(x) */",
    ),
    "tables and CTEs that are called like a macro": (
        "CREATE MACRO f(a) AS a",
        "WITH f (a) AS (SELECT 1), g AS (SELECT f(a) FROM f) SELECT a FROM VALUES (1) AS f (a) JOIN VALUES (1) f (b)",
        "WITH f (a) AS (SELECT 1), g AS (SELECT a FROM f) SELECT a FROM VALUES (1) AS f (a) JOIN VALUES (1) f (b)",
    ),
    "several columns of a generator": ("CREATE MACRO f(a) AS inline(a)", "SELECT f(x) AS (a, b)", "SELECT inline(x) AS (a, b)"),
    "an argument with a query": (
        "CREATE MACRO f(a) AS a + 1",
        "SELECT f((SELECT max(x) FROM a.b))",
        "SELECT (SELECT max(x) FROM a.b) + 1",
    ),
    "an aggregate": (
        "CREATE MACRO share(a) AS count_if(a) / count(*)",
        "SELECT share(x > 1)",
        "SELECT count_if(x > 1) / count(*)",
    ),
    "a window": (
        "CREATE MACRO f(a, k) AS sum(a) OVER (PARTITION BY k ORDER BY a)",
        "SELECT f(x + 1, y)",
        "SELECT sum(x + 1) OVER (PARTITION BY y ORDER BY x + 1)",
    ),
}


@pytest.mark.parametrize("name", EXPANSIONS)
def test_macros_expand_calls(name: str) -> None:
    definitions, sql, expected = EXPANSIONS[name]
    assert expand(definitions, sql) == expected


_FRAMES = (
    *("NOT {}", "- {}", "({})", "lower({})", "coalesce({}, 1)", "CASE WHEN {} THEN {} ELSE {} END", "{} IS NOT NULL"),
    *("{} IN (1, {})", "{} BETWEEN {} AND {}", "CAST({} AS INT)", "{}[0]", "filter({}, VARIABLE -> VARIABLE = {})"),
    *("struct({} AS name)", "trim(BOTH {} FROM {})", "sum({}) OVER (PARTITION BY {} ORDER BY {} DESC)", "INTERVAL 1 DAY * {}"),
    *(f"{{}} {operator} {{}}" for operator in ("+", "-", "*", "||", "=", "<", "AND", "OR", "LIKE", "DIV", "IS DISTINCT FROM")),
)


def expressions(*leaves: str, variable: str) -> st.SearchStrategy[str]:
    """Return SQL of nested operators over these names, with only the brackets of the frames."""
    frames = st.sampled_from([frame.replace("VARIABLE", variable) for frame in _FRAMES])

    def framed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return frames.flatmap(lambda frame: st.tuples(*([inner] * frame.count("{}"))).map(lambda parts: frame.format(*parts)))

    return st.recursive(st.sampled_from(leaves), framed, max_leaves=5)


def nesting_of(sql: str) -> str | None:
    """Return the nesting of a query's operators without brackets, or None for invalid SQL."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.ParseError:
        return None
    for bracket in reversed(list(tree.find_all(exp.Paren))):
        bracket.replace(bracket.this)
    return repr(tree)


@given(
    body=expressions("first", "second", "'t'", variable="x"),
    first=expressions("a", "1", variable="y"),
    second=expressions("b.c", "NULL", variable="y"),
    site=expressions("CALL", "d", variable="z"),
)
def test_macros_add_brackets_where_needed(body: str, first: str, second: str, site: str) -> None:
    problems = Problems()
    macros = parse_macros(f"CREATE MACRO f(first, second) AS {body}", place=PLACE, problems=problems)
    in_brackets = body.replace("first", f"({first})").replace("second", f"({second})")
    wanted = nesting_of(f"SELECT {site} FROM t".replace("CALL", f"({in_brackets})"))
    parts = (nesting_of(f"SELECT {part}") for part in (body, first, second, site))
    if problems.errors or wanted is None or None in parts:
        return  # frames that don't go together
    errors: list[SpecError] = []
    sql = f"SELECT {site} FROM t".replace("CALL", f"f({first}, {second})")
    expanded = macros.expand(sql, refuse=lambda what, at, fix: PLACE.error(what, line=at, fix=fix), errors=errors)
    assert [str(error) for error in errors] == []
    assert expanded is not None
    assert nesting_of(expanded.text) == wanted, expanded.text


def test_macros_drop_comments_and_keep_lines() -> None:
    definitions = """
-- A comment with a ; in it.
CREATE MACRO f(a, /* the other */ b) AS -- the body
    a  -- AS
    /* ; */
    + b;
"""
    sql = "SELECT\n  f(\n    x, -- the first\n    y  -- the second\n  ) AS z, -- kept\n  w"
    expanded = expand(definitions, sql)
    assert re.sub(r" +", " ", expanded) == "SELECT\n x + y\n\n\n AS z, -- kept\n w"
    assert expanded.count("\n") == sql.count("\n")


def test_source_map_locates_expanded_characters() -> None:
    macros = macros_of("CREATE MACRO f(a, b) AS concat(a, lower(b))")
    sql = "SELECT f(\n  first,\n  f(second, third)) AS x, fourth"
    expanded = macros.expand(sql, refuse=lambda *_: PLACE.error("", line=1, fix=""), errors=[])
    assert expanded is not None
    assert expanded.origin is not None
    for word in ("first", "second", "third", "fourth", "AS", "SELECT"):
        location = expanded.origin.locate(expanded.text.index(word))
        assert location == locate(sql, sql.index(word)), word
    outer, inner = (match.start() for match in re.finditer("concat", expanded.text))
    assert expanded.origin.locate(outer) == locate(sql, sql.index("f("), macro='macro "f", macros.sql:1')
    assert expanded.origin.locate(inner) == locate(sql, sql.index("f(second"), macro='macro "f", macros.sql:1')
    assert expanded.origin.locate(inner).line == 3


# A comment `! text` at the end of a line is an error that the check must report for the line. Several are separated by `!`.
PLANTED = {
    **FILES,
    "macros.sql": """\
CREATE MACRO good(a, b) AS concat(a, b);
CREATE MACRO lower(a) AS a;                         -- ! "lower" is a function or keyword of Spark
CREATE MACRO using(a) AS a;                         -- ! "using" is a function or keyword of Spark
CREATE MACRO double(a) AS a; CREATE MACRO doubled(a) AS a;  -- ! "double" is a function or keyword of Spark
CREATE MACRO doubled(a, b) AS a;                    -- ! macro "doubled" is already defined in line 4
CREATE MACRO Shouted(a) AS a;                       -- ! "Shouted" is not a valid macro name
CREATE FUNCTION f(a) AS a;                          -- ! not a macro definition
CREATE MACRO no_list AS 1;                          -- ! macro "no_list" has no parameter list
CREATE MACRO no_body(a);                            -- ! macro "no_body" has no body
CREATE MACRO typed(a STRING) AS a;                  -- ! invalid parameter of macro "typed"
CREATE MACRO twice(a, a) AS a;                      -- ! duplicate parameter "a"
CREATE MACRO rows_of(a) AS TABLE SELECT a;          -- ! macro "rows_of" is not an expression
CREATE MACRO query_of(a) AS (SELECT max(a));        -- ! macro "query_of" is not an expression
CREATE MACRO two(a) AS a, a;                        -- ! macro "two" is not an expression
CREATE MACRO named(a) AS a AS b;                    -- ! macro "named" is not an expression
CREATE MACRO from_a(a) AS a FROM raw.orders;        -- ! macro "from_a" is not an expression
CREATE MACRO open_one(a) AS concat(a, (a);          -- ! not valid SQL
CREATE MACRO typo(value) AS concat(value,
  valeu,                                            -- ! "valeu" is not a parameter of macro "typo"
  other.field);                                     -- ! "other" is not a parameter of macro "typo"
CREATE MACRO shadow(x, xs) AS filter(xs, x -> x);   -- ! the lambda variable "x" has the name of a parameter
CREATE MACRO unit(day) AS extract(day FROM day);    -- ! parameter "day" of macro "unit" is a keyword here
CREATE MACRO round_a(a) AS round_b(a);
CREATE MACRO round_b(a) AS round_a(a);              -- ! circular macro calls: round_a → round_b → round_a
CREATE MACRO itself(a) AS itself(a);                -- ! circular macro calls: itself → itself
CREATE MACRO calls(a) AS good(a);                   -- ! macro "good" takes 2 arguments, not 1
CREATE MACRO follows(a) AS typo(a) || calls(a) || round_a(a);
""",
    "staging/wrong.sql": """\
/*
keys: [id]
sequence_by: at
apply_as_deletes: good(email)                       # ! macro "good" takes 2 arguments, not 1
expect:
  it is good: good(id, email, 1) = ''               # ! macro "good" takes 2 arguments, not 3
  it has a typo: goood(id, '') = ''
  it follows: follows(id) = ''
*/
SELECT
  good(id) AS id,                                   -- ! macro "good" takes 2 arguments, not 1
  good(good(id), good()) AS x,                      -- ! takes 2 arguments, not 1 ! takes 2 arguments, not 0
  good(id, ) AS y,                                  -- ! an argument of "good" is empty
  good(id, *) AS z,                                 -- ! can't be *
  good(id, t -> t) AS v,                            -- ! can't be a lambda
  good(id, email AS e) AS w,                        -- ! can't be an alias
  good(id, email) OVER w AS u,                      -- ! OVER can't follow a macro call
  at
FROM raw.orders
""",
    "staging/follows.sql": "SELECT follows(id) AS id, typo(email) AS e, no_body(1) AS n, doubled(id, 1) FROM raw.orders",
    "staging/of_follows.sql": "SELECT anything FROM staging.follows",
    "staging/columns.sql": """\
SELECT good(id, emial) AS a,                        -- ! column "emial"
  good(
    good(id, ''),
    amuont) AS b                                    -- ! column "amuont"
FROM raw.orders
""",
    "staging/inputs.sql": "SELECT good(id, (SELECT max(id) FROM orders)) AS a FROM raw.orders  -- ! is not namespace.table",
    "staging/open.sql": 'SELECT good(id, email FROM raw.orders  -- ! the call of "good" has no closing bracket',
}


def test_check_reports_every_macro_error_once(tmp_path: Path) -> None:
    assert_reported(tmp_path, PLANTED)


def test_check_suggests_macros_for_unknown_functions(tmp_path: Path) -> None:
    files = {
        **FILES,
        "macros.sql": """\
CREATE MACRO clean_text(a) AS trim(a);
CREATE MACRO clean_all(a) AS cleantext(a);  -- ! unknown function or macro "cleantext"
""",
        "staging/typo.sql": "/*\nexpect:\n"
        '  it is clean: clean_texts(id) = id  # ! unknown function or macro "clean_texts"\n*/\n'
        'SELECT clean_txt(id) AS id FROM raw.orders  -- ! unknown function or macro "clean_txt"',
        "staging/short.sql": 'SELECT clean(id) AS id FROM raw.orders  -- ! unknown function or macro "clean"',
        "staging/other.sql": 'SELECT another(id) AS id FROM raw.orders AS t  -- ! unknown function or macro "another"',
    }
    assert_reported(tmp_path, files)
    (short,) = [error for error in check(tmp_path, files).errors if '"clean"' in error.what]
    assert 'Did you mean "clean_all"?' in short.next_step
    (error,) = [candidate for candidate in check(tmp_path, files).errors if "clean_txt" in candidate.what]
    assert error.where == "pipelines/mine/staging/typo.sql:5:8"
    assert 'Did you mean "clean_text"?' in error.next_step


def test_macro_errors_have_the_call_and_the_definition(tmp_path: Path) -> None:
    files = {
        "macros.sql": "-- One macro.\nCREATE MACRO good(a, b) AS a || b;\n",
        "staging/a.sql": "SELECT\n  id, good(id) AS x\nFROM raw.orders\n",
    }
    (error,) = check(tmp_path, files).errors
    assert error.where == "pipelines/mine/staging/a.sql:2:7"
    assert error.next_step.startswith("Write good(a, b), as pipelines/mine/macros.sql:2 defines it, then run: headrace check")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE MACRO f(a) AS 'x", "macros.sql:1: unterminated string or comment"),
        ("CREATE MACRO f(a) AS concat(a, 'x\ny')", "macros.sql:1:22: a macro can't contain a multi-line string"),
        ("CREATE MACRO f(a)\nAS a -> a", 'macros.sql:2:4: the body of macro "f" is not an expression'),
        ("CREATE OR REPLACE MACRO f(a) AS a", "macros.sql:1:1: not a macro definition"),
        ("CREATE MACRO f(a) AS\n  concat(a,\n  (b)", "macros.sql:3:5: not valid SQL"),
        ("CREATE MACRO g(b) AS b || c;\nCREATE MACRO f(a) AS g(a)", 'macros.sql:1:27: "c" is not a parameter of macro "g"'),
    ],
)
def test_macro_file_errors_have_line_and_column(text: str, said: str) -> None:
    problems = Problems()
    parse_macros(text, place=PLACE, problems=problems)
    assert [str(error).startswith(said) for error in problems.errors] == [True], problems.errors


def test_macros_reject_expansions_that_are_too_long() -> None:
    doubles = [f"CREATE MACRO d{number}(a) AS d{number - 1}(a) || d{number - 1}(a);" for number in range(1, 60)]
    problems = Problems()
    parse_macros("\n".join(["CREATE MACRO d0(a) AS a || a;", *doubles]), place=PLACE, problems=problems)
    (error,) = problems.errors
    assert f"more than {LARGEST_BODY:,} characters" in str(error)
    assert error.where.startswith("macros.sql:1")


def test_tables_without_macros_keep_their_text(tmp_path: Path) -> None:
    sql = "SELECT id, trim( email ) AS email -- as it is\nFROM raw.orders\n"
    source = only_table(load(tmp_path, {"macros.sql": "CREATE MACRO f(a) AS a", "staging/a.sql": sql})).source
    assert isinstance(source, Query)
    assert (source.text, source.origin) == (sql, None)
    assert only_table(load(tmp_path, {"macros.sql": "-- none yet"})).source == source


def test_definition_depends_on_macro_bodies_not_on_formatting(tmp_path: Path) -> None:
    body = "IF(array_contains(array('', 'n/a'), lower(trim(email))), NULL, trim(email))"
    plain = definition_of(only_table(load(tmp_path, {"staging/a.sql": f"SELECT id, {body} AS email FROM raw.orders"})))
    macro = (
        "CREATE MACRO clean(a) AS -- the text, or null\n  if(is_none(a), null, trim(a));\n"
        "CREATE MACRO is_none(a) AS array_contains({}, lower(trim(a)));"
    )
    files = {
        "macros.sql": macro.format("array('', 'n/a')"),
        "staging/a.sql": "SELECT id, clean(email) AS email FROM raw.orders",
    }
    assert definition_of(only_table(load(tmp_path, files))) == plain
    files["macros.sql"] = macro.format("array('', 'n/a', 'none')")
    assert definition_of(only_table(load(tmp_path, files))) != plain


def test_settings_conditions_expand_macros(tmp_path: Path) -> None:
    files = {
        "macros.sql": "CREATE MACRO is_low(a, b) AS a < b;\nCREATE MACRO is_gone(a) AS a = 'gone';",
        "staging/a.sql": """\
/*
keys: [id]
sequence_by: at
apply_as_deletes: is_gone(email) AND is_low(amount, 0)
apply_as_truncates: is_gone(id)
expect:
  it is high: {that: "NOT is_low(amount, 1 + 1)", on_failure: quarantine}
  it is there: NOT is_gone(email)
*/
SELECT id, amount, at, email FROM raw.orders
""",
        "marts/b.py": """\
from headrace import table


@table(kind="full", expect={"it is there": "NOT is_gone(email)"})
def b(a):
    return a
""",
    }
    table, function = load(tmp_path, files).tables
    assert table.apply_as_deletes == "(email = 'gone') AND (amount < 0)"
    assert table.apply_as_truncates == "id = 'gone'"
    assert [expectation.that for expectation in table.expectations] == ["NOT (amount < (1 + 1))", "NOT (email = 'gone')"]
    assert [expectation.that for expectation in function.expectations] == ["NOT (email = 'gone')"]


def test_python_table_condition_error_has_its_line(tmp_path: Path) -> None:
    files = {
        "macros.sql": "CREATE MACRO is_gone(a) AS a = 'gone';",
        "marts/b.py": 'from headrace import table\n\n\n@table(\n    kind="full",\n    expect={"it is there": "is_gone()"},\n)\n'
        "def b(orders):\n    return orders\n",
    }
    (error,) = check(tmp_path, files).errors
    assert str(error).startswith('pipelines/mine/marts/b.py:6: macro "is_gone" takes 1 argument, not 0')


def test_lineage_traces_through_macros(tmp_path: Path) -> None:
    files = {
        "macros.sql": "CREATE MACRO pair(a, b) AS concat_ws(' ', a, b);",
        "staging/a.sql": "SELECT id, pair(email, pair(id, 'x')) AS name FROM raw.orders",
    }
    lineage = trace_lineage(load(tmp_path, files))
    raw = TableName("raw", "orders")
    name = lineage.column(Field(TableName("staging", "a"), "name"))
    assert name is not None
    assert name.sources == (Field(raw, "email"), Field(raw, "id"))
    assert "CONCAT_WS" in name.expressions[0].upper()
    assert "pair" not in name.expressions[0]


def test_documented_macro_example_is_correct(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2].joinpath("docs/reference/tables.md").read_text(encoding="utf-8")
    section = guide.partition("\n## Macros\n")[2].partition("\n## ")[0]
    macros, table, expanded = re.findall(r"```sql\n(.*?)```", section, flags=re.DOTALL)
    schema = {"schemas/order.sql": "order_id STRING, email STRING, discount DOUBLE"}
    built = only_table(load(tmp_path, {**schema, "macros.sql": macros, "staging/orders.sql": table}))
    assert isinstance(built.source, Query)
    assert built.source.text.partition("*/\n")[2] == expanded
    assert [expectation.that for expectation in built.expectations] == ["discount BETWEEN 0 AND 1"]


def test_copied_pipeline_has_its_macros(tmp_path: Path) -> None:
    copy_pipeline("payments", target_name="mine", folder=tmp_path)
    original = load_pipeline("payments", environ={}, folder=tmp_path)
    copied = load_pipeline("mine", environ={}, folder=tmp_path)
    assert (copied.folder / "macros.sql").read_text() == (original.folder / "macros.sql").read_text()
    assert len(copied.tables) == len(original.tables)


def test_check_reports_unknown_functions_without_macros(tmp_path: Path) -> None:
    files = {
        **FILES,
        "staging/typo.sql": 'SELECT\n    coalese(id, email) AS id  -- ! unknown function or macro "coalese"\nFROM raw.orders',
    }
    assert_reported(tmp_path, files)
    (error,) = check(tmp_path, files).errors
    assert error.where == "pipelines/mine/staging/typo.sql:2:5"
    assert 'Did you mean "coalesce"?' in error.next_step


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT system.bucket(4, id), spark_catalog.default.own(id), `own`(id) FROM raw.orders",
        "SELECT /*+ SHUFFLE_HASH(o) */ timestampdiff(DAY, at, now()), CAST(id AS VARCHAR(3)) FROM raw.orders AS o",
        "WITH own(a) AS (SELECT id FROM raw.orders), more(b) AS (FROM own) SELECT b FROM more",
        "SELECT d.a FROM raw.date d(a) JOIN VALUES (1) v(b) TABLESAMPLE (10 PERCENT) LATERAL VIEW explode(d.a) x AS y",
        "SELECT count(*) FILTER (WHERE a IN (1)) OVER (PARTITION BY b), Registered(a) FROM raw.orders WINDOW w AS (ORDER BY a)",
        "SELECT * FROM raw.orders PIVOT (sum(amount) FOR id IN ('a', 'b')) AS p(c, d) GROUP BY GROUPING SETS ((c), CUBE(d))",
    ],
)
def test_expand_allows_functions_of_spark_and_catalogs(sql: str) -> None:
    errors: list[SpecError] = []
    macros = Macros(registered=frozenset({"registered"}))
    macros.expand(sql, refuse=lambda what, at, fix: PLACE.error(what, line=at, fix=fix), errors=errors)
    assert [str(error) for error in errors] == []


def test_check_allows_functions_registered_in_python(tmp_path: Path) -> None:
    python = """\
from headrace import table
from pyspark.sql import DataFrame, SparkSession


@table(keys=["id"])
def scored(orders: DataFrame, spark: SparkSession) -> DataFrame:
    spark.udf.register("score", len)
    return orders
"""
    files = {"shape/scored.py": python, "staging/uses.sql": "SELECT score(id) AS points FROM raw.orders"}
    assert not [error for error in check(tmp_path, files).errors if "score" in error.what]
