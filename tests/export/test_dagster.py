"""The exported Dagster definitions: valid Python with tables, dependencies, partitions and checks.

What a real Dagster makes of them is held by `make dagster`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, SettingsError, SpecError
from headrace.export.dagster import DagsterSettings, definitions_text, export_definitions
from headrace.settings import load_settings
from headrace.spec import Pipeline, load_pipeline
from tests.support.shop import write_shop

SHOP = DagsterSettings("shop", "shop")


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    write_shop(tmp_path)
    return load_pipeline("shop", environ={}, folder=tmp_path)


def value_of(node: ast.expr) -> object:
    """Return the value of an expression of literals. A call becomes a tuple of its arguments."""
    if isinstance(node, ast.Call):
        return tuple(value_of(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords)))
    if isinstance(node, ast.Tuple):
        return tuple(value_of(element) for element in node.elts)
    return ast.literal_eval(node)


def said(text: str) -> dict[str, object]:
    """Return the constants of the pipeline's block, parsed without Dagster."""
    block = text.partition("# <pipeline>")[2].partition("# </pipeline>")[0]
    values: dict[str, object] = {}
    for statement in ast.parse(block).body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        assert isinstance(target, ast.Name)
        values[target.id] = value_of(statement.value)  # type: ignore[attr-defined]
    return values


@pytest.mark.parametrize("name", ["payments", "commerce", "storefront", "weather", "shop"])
def test_definitions_have_an_asset_per_table(name: str, shop: Pipeline, tmp_path: Path) -> None:
    pipeline = load_pipeline(name, environ={}, folder=tmp_path)
    text = definitions_text(pipeline, DagsterSettings(name, name), folder="..")
    compile(text, f"{name}.py", "exec")
    values = said(text)
    assert [key for key, _ in values["SOURCES"]] == [stream.table.parts for stream in pipeline.streams]  # type: ignore[attr-defined]
    tables = values["TABLES"]
    assert isinstance(tables, tuple)
    for (key, layer, reads, about, partition_by, checks), table in zip(tables, pipeline.tables, strict=True):
        assert (key, layer, about) == (table.table.parts, table.layer, table.about)
        assert reads == tuple(name.parts for name in dict.fromkeys(table.inputs))
        assert partition_by == tuple(str(transform) for transform in table.partition_by)
        assert [(sentence, on_failure) for _, sentence, on_failure in checks] == [
            (expectation.sentence, expectation.on_failure) for expectation in table.expectations
        ]
        names = [name for name, _, _ in checks]
        assert len(names) == len({*names})
        assert all(name.isidentifier() or name[0].isdigit() for name in names)


def test_check_names_are_unique(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    expect = "expect: {'id > 0!': id IS NOT NULL, 'id > 0?': id IS NOT NULL, 'é': id IS NOT NULL}"
    (folder / "marts/words.sql").write_text(f"/*\n{expect}\n*/\nSELECT id FROM staging.log AS l", encoding="utf-8")
    tables = said(definitions_text(load_pipeline("shop", environ={}, folder=tmp_path), SHOP, folder="."))["TABLES"]
    assert isinstance(tables, tuple)
    checks = next(checks for key, *_, checks in tables if key == ("marts", "words"))
    assert [name for name, _, _ in checks] == ["id_0", "id_0_2", "expectation"]


def test_definitions_text_is_deterministic(shop: Pipeline, tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    messages = export_definitions(settings, shop, SHOP, into=tmp_path / "defs")
    first = (tmp_path / "defs/shop.py").read_text(encoding="utf-8")
    assert "7 tables and 4 checks" in messages[0]
    assert said(first)["FOLDER_FROM_HERE"] == ".."
    assert str(tmp_path) not in first, "nothing absolute"
    export_definitions(settings, load_pipeline("shop", environ={}, folder=tmp_path), SHOP, into=tmp_path / "defs")
    assert (tmp_path / "defs/shop.py").read_text(encoding="utf-8") == first
    assert "type: ignore" not in first


def test_definitions_have_the_requested_settings(shop: Pipeline) -> None:
    dagster_settings = DagsterSettings("my_shop", "pipelines/shop", schedule="*/15 2-4 * * 1", retries=5, land_first=True)
    values = said(definitions_text(shop, dagster_settings, folder="."))
    assert (values["NAME"], values["PIPELINE"], values["ABOUT"]) == ("my_shop", "pipelines/shop", "charges of a shop")
    assert (values["SCHEDULE"], values["RETRIES"], values["LANDS_FIRST"]) == ("*/15 2-4 * * 1", 5, True)


def test_definitions_reject_a_pipeline_without_tables(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no layer tables"):
        definitions_text(
            load_pipeline("lineage", environ={}, folder=tmp_path), DagsterSettings("lineage", "lineage"), folder="."
        )


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (DagsterSettings("My shop", "shop"), "--name"),
        (DagsterSettings("shop", "shop", schedule="sometimes"), "--schedule"),
        (DagsterSettings("shop", "shop", schedule="@once"), "--schedule"),
        (DagsterSettings("shop", "shop", schedule='@daily"\nimport os'), "--schedule"),
    ],
)
def test_definitions_reject_settings_that_dagster_rejects(shop: Pipeline, asked: DagsterSettings, where: str) -> None:
    with pytest.raises(SettingsError) as refused:
        definitions_text(shop, asked, folder=".")
    assert refused.value.where == where


def test_definitions_export_keeps_foreign_files(shop: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("print('mine')\n")
    with pytest.raises(HeadraceError, match="was not written by headrace export dagster"):
        export_definitions(load_settings(flags={}, environ={}, folder=tmp_path), shop, SHOP, into=tmp_path)
    assert (tmp_path / "shop.py").read_text() == "print('mine')\n"
