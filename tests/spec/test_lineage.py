"""Lineage of tables and columns, without running anything."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headrace.cli.render.lineage import lineage_as_json, lineage_as_mermaid, show_lineage
from headrace.errors import SpecError
from headrace.spec import TableName, check_pipeline, load_pipeline
from headrace.spec.sql.lineage import Field, Lineage, Topic, trace_lineage, walk
from tests.support.shop import write_shop


@pytest.fixture
def shop(tmp_path: Path) -> Lineage:
    write_shop(tmp_path)
    return trace_lineage(load_pipeline("shop", environ={}, folder=tmp_path))


def field(name: str) -> Field:
    namespace, table, column = name.split(".")
    return Field(TableName(namespace, table), column)


@pytest.mark.parametrize(
    ("column", "sources", "expressions"),
    [
        ("staging.charges.id", ["raw.charges.id"], []),
        ("staging.charges.customerId", ["raw.charges.customerId"], []),
        ("staging.charges.status", ["raw.charges.status"], ["UPPER(TRIM(status))"]),
        ("staging.charges.ip", ["raw.charges.metadata"], ["metadata.ip"]),
        ("staging.log.hour", ["raw.charges.updated_at"], ["DATE_TRUNC('HOUR', updated_at)"]),
        ("marts.by_country.charges", [], ["COUNT(*)"]),
        ("marts.by_country.total", ["staging.charges.amount"], ["SUM(c.amount)"]),
        ("marts.by_country.since", ["staging.customers.valid_from"], ["MAX(v.valid_from)"]),
        ("marts.all_ids.id", ["features.score.id", "staging.customers.customerId"], []),
        ("marts.all_ids.what", [], ["'charge'", "'customer'"]),
        ("marts.all_ids.points", ["features.score.points", "staging.customers.country"], ["points * 2", "LENGTH(country)"]),
    ],
)
def test_lineage_traces_the_sources_of_a_column(shop: Lineage, column: str, sources: list[str], expressions: list[str]) -> None:
    traced = shop.column(field(column))
    assert traced is not None
    assert ([str(source) for source in traced.sources], list(traced.expressions)) == (sources, expressions)


def test_lineage_ignores_columns_that_only_filter(shop: Lineage) -> None:
    spent = shop.column(field("features.spending.spent"))
    assert spent is not None
    assert spent.sources == (field("staging.charges.amount"),), "neither the window's partition nor its order"
    assert shop.dependents(field("raw.charges.at")) == (), "WHERE at > 0 makes no value"


def test_lineage_of_raw_columns_starts_at_the_topic(shop: Lineage) -> None:
    topic = Topic("shop_charges")
    assert shop.sources(field("raw.charges.amount")) == (Field(topic, "amount"),)
    assert shop.sources(field("raw.charges.happened")) == (Field(topic, "at"),)
    offset, extra = shop.column(field("raw.charges.kafka_offset")), shop.column(field("raw.charges._extra"))
    assert offset is not None
    assert extra is not None
    assert (offset.sources, offset.note) == ((), "Kafka: the message's offset")
    assert "does not name" in extra.note


def test_lineage_walks_upstream_and_downstream(shop: Lineage) -> None:
    amount = Field(Topic("shop_charges"), "amount")
    assert walk(field("marts.by_country.total"), shop.sources)[-1] == amount
    assert field("marts.by_country.total") in walk(amount, shop.dependents)
    assert walk(TableName("marts", "by_country"), shop.inputs)[-1] == Topic("shop_charges")
    assert TableName("marts", "all_ids") in walk(TableName("staging", "charges"), shop.readers)


def test_lineage_covers_added_and_excluded_columns(shop: Lineage) -> None:
    charges, customers = shop.table(TableName("staging", "charges")), shop.table(TableName("staging", "customers"))
    assert charges is not None
    assert customers is not None
    assert charges.column("offset") is None
    assert [column.name for column in customers.columns][-4:] == ["valid_from", "valid_to", "is_current", "_build_id"]


def test_lineage_traces_a_python_table_as_a_whole(shop: Lineage) -> None:
    score = shop.table(TableName("features", "score"))
    assert score is not None
    assert not score.whole
    assert [column.name for column in score.columns] == ["id", "points", "_build_id"], "the columns that its readers name"
    assert shop.find("score.anything") == field("features.score.anything"), "only running it would tell"


def test_lineage_finds_tables_and_columns_by_name(shop: Lineage) -> None:
    assert shop.find("by_country") == shop.find("marts.by_country") == TableName("marts", "by_country")
    assert shop.find("by_country.total") == shop.find("marts.by_country.TOTAL") == field("marts.by_country.total")
    with pytest.raises(SpecError, match=r"table name .* is ambiguous") as several:
        shop.find("charges")
    assert "raw.charges, staging.charges" in str(several.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "by_country.totl",
            ('marts.by_country has no column "totl"', 'Did you mean "total"?', "Columns are: country, charges"),
        ),
        ("raw.charges.nothing", ('raw.charges has no column "nothing"', "Columns are: id, at, amount")),
        (
            "marts.by_contry",
            ('not found: table "marts.by_contry"', 'Did you mean "marts.by_country"?', "Tables are: raw.charges"),
        ),
        ("a.b.c.d", ('not found: table "a.b.c.d"', "Tables are: raw.charges")),
    ],
)
def test_lineage_rejects_unknown_names(shop: Lineage, name: str, says: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        shop.find(name)
    for part in ("pipeline shop: ", *says):
        assert part in str(error.value)


def test_lineage_json_has_the_role_of_each_input(shop: Lineage) -> None:
    document = lineage_as_json(shop, TableName("marts", "by_country"))
    assert document["inputs"] == [
        {"table": "staging.charges", "role": "drives"},
        {"table": "staging.customers", "role": "joined"},
    ]
    assert document["upstream"] == ["staging.charges", "staging.customers", "raw.charges", "topic shop_charges"]
    column = lineage_as_json(shop, field("staging.charges.status"))
    assert column["from"] == [{"table": "raw.charges", "column": "status"}]
    assert column["expressions"] == ["UPPER(TRIM(status))"]


def test_lineage_renders_mermaid(shop: Lineage) -> None:
    chart = lineage_as_mermaid(shop, TableName("marts", "by_country"))
    assert chart.splitlines()[:3] == ["flowchart LR", '  n0(["topic shop_charges"])', '  n1[("raw.charges")]']
    assert chart.count("-.->") == 1
    assert '[["features.score"]]' in lineage_as_mermaid(shop, None)
    assert "field amount" in lineage_as_mermaid(shop, field("marts.by_country.total"))


def shown(lineage: Lineage, target: str | None = None) -> list[str]:
    console = Console(file=StringIO(), width=240)
    show_lineage(console, lineage, lineage.find(target) if target else None)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_lineage_renders_a_column(shop: Lineage) -> None:
    assert shown(shop, "marts.by_country.total") == [
        "marts.by_country.total  SUM(c.amount)",
        "comes from",
        "└── staging.charges.amount  CAST(amount AS DECIMAL(12, 2))",
        "    └── raw.charges.amount",
        "        └── topic shop_charges, field amount",
        "goes into",
        "└── no other column that can be traced",
    ]
    assert "└── perhaps columns of features.score: made by Python: its tables are traced, its columns are not" in shown(
        shop, "raw.charges.id"
    )
    assert any("made by Python" in line for line in shown(shop, "score.points"))


def test_lineage_renders_a_table(shop: Lineage) -> None:
    charges = shown(shop, "staging.charges")
    assert charges[:4] == [
        "staging.charges upsert · staging/charges.sql",
        "comes from",
        "└── raw.charges raw · pipeline.yml",
        "    └── topic shop_charges",
    ]
    assert "├── status ← raw.charges.status   UPPER(TRIM(status))" in charges
    assert "└── marts.by_country aggregate · marts/by_country.sql" in charges
    assert any("staging.customers (looked up)" in line for line in shown(shop, "by_country"))
    assert shown(shop)[0] == "topic shop_charges"


def test_lineage_keeps_the_spelling_of_the_query(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    assert not check_pipeline("shop", environ={}, folder=tmp_path).errors, "keys: [customerId], and a reader of is_current"
    text = (folder / "marts/by_country.sql").read_text()
    (folder / "marts/by_country.sql").write_text(text.replace("max(v.valid_from)", "max(v._build_id)"))
    errors = check_pipeline("shop", environ={}, folder=tmp_path).errors
    assert ["_build_id" in error.what for error in errors] == [True], "readers don't see it"


def test_lineage_of_twenty_wide_tables_is_fast(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    columns = ", ".join(f"upper(s.status) AS c{number}" for number in range(40))
    for number in range(20):
        query = f"WITH s AS (SELECT * FROM raw.charges) SELECT id, {columns} FROM s JOIN staging.log AS l USING (id)"
        (folder / f"marts/wide_{number}.sql").write_text(f"/*\nfrozen: [staging.log]\n*/\n{query}")
    pipeline = load_pipeline("shop", environ={}, folder=tmp_path)
    began = time.process_time()
    trace_lineage(pipeline)
    assert time.process_time() - began < 1.5
