"""The exported DAG: valid Python with tables and dependencies, and deterministic.

What a real Airflow makes of it is held by `make airflow`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, SettingsError, SpecError
from headrace.export.airflow import DagSettings, dag_text, export_dag
from headrace.settings import load_settings
from headrace.spec import Pipeline, load_pipeline
from tests.support.shop import write_shop

SHOP = DagSettings("shop", "shop")


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    write_shop(tmp_path)
    return load_pipeline("shop", environ={}, folder=tmp_path)


def constants(text: str) -> dict[str, object]:
    """Return the constants of the pipeline's block, parsed without Airflow. A table is a dict of its fields."""
    values: dict[str, object] = {}
    for statement in ast.parse(text).body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and target.id == "TABLES":
            value = statement.value  # type: ignore[attr-defined]
            values["TABLES"] = [{field.arg: ast.literal_eval(field.value) for field in call.keywords} for call in value.elts]
        elif isinstance(target, ast.Name):
            try:
                values[target.id] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
            except ValueError:
                continue
    return values


@pytest.mark.parametrize("name", ["payments", "weather", "shop"])
def test_dag_has_a_task_per_table_in_dependency_order(name: str, shop: Pipeline, tmp_path: Path) -> None:
    pipeline = load_pipeline(name, environ={}, folder=tmp_path)
    text = dag_text(pipeline, DagSettings(name, name), folder="..")
    tables = constants(text)["TABLES"]
    built = {table.table for table in pipeline.tables}
    assert tables == [
        {
            "name": str(table.table),
            "task": table.table.name,
            "layer": table.layer,
            "reads": tuple(str(read) for read in dict.fromkeys(table.inputs) if read in built),
            "about": table.about,
        }
        for table in pipeline.tables
    ]


def test_dag_text_is_deterministic(shop: Pipeline, tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    messages = export_dag(settings, shop, SHOP, into=tmp_path / "dags")
    first = (tmp_path / "dags/shop.py").read_text(encoding="utf-8")
    assert "7 tables" in messages[0]
    assert constants(first)["FOLDER_FROM_HERE"] == ".."
    assert str(tmp_path) not in first, "nothing absolute"
    again = load_pipeline("shop", environ={}, folder=tmp_path)
    export_dag(settings, again, SHOP, into=tmp_path / "dags")
    assert (tmp_path / "dags/shop.py").read_text(encoding="utf-8") == first
    assert "type: ignore" not in first


def test_dag_has_the_requested_settings(shop: Pipeline) -> None:
    dag_settings = DagSettings("my_shop", "pipelines/shop", schedule="*/15 2-4 * * MON", retries=5, land_first=True)
    values = constants(dag_text(shop, dag_settings, folder="."))
    assert (values["DAG_ID"], values["PIPELINE"], values["ABOUT"]) == ("my_shop", "pipelines/shop", "charges of a shop")
    assert (values["SCHEDULE"], values["RETRIES"], values["LANDS_FIRST"]) == ("*/15 2-4 * * MON", 5, True)
    assert constants(dag_text(shop, SHOP, folder="."))["SCHEDULE"] is None


def test_dag_escapes_texts(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    about = 'Says "\\") + __import__("os")" and {{ braces }}, ünd 🙂'
    (folder / "marts/words.sql").write_text(f"/*\nabout: '{about}'\n*/\nSELECT id FROM staging.log AS l", encoding="utf-8")
    tables = constants(dag_text(load_pipeline("shop", environ={}, folder=tmp_path), SHOP, folder="."))["TABLES"]
    assert isinstance(tables, list)
    assert [task["about"] for task in tables if task["task"] == "words"] == [about]


def test_dag_rejects_a_pipeline_without_tables(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no layer tables"):
        dag_text(load_pipeline("lineage", environ={}, folder=tmp_path), DagSettings("lineage", "lineage"), folder=".")


def test_dag_rejects_a_layer_with_a_reserved_name(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    (folder / "land").mkdir()
    (folder / "land/things.sql").write_text("SELECT id FROM staging.log AS l")
    with pytest.raises(SpecError, match='the layer name "land" is reserved'):
        dag_text(load_pipeline("shop", environ={}, folder=tmp_path), SHOP, folder=".")


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (DagSettings("My shop", "shop"), "--dag"),
        (DagSettings("../shop", "shop"), "--dag"),
        (DagSettings("shop", "shop", schedule="sometimes"), "--schedule"),
        (DagSettings("shop", "shop", schedule="* * * *"), "--schedule"),
        (DagSettings("shop", "shop", schedule='@daily"\nimport os'), "--schedule"),
    ],
)
def test_dag_rejects_settings_that_airflow_rejects(shop: Pipeline, asked: DagSettings, where: str) -> None:
    with pytest.raises(SettingsError) as refused:
        dag_text(shop, asked, folder=".")
    assert refused.value.where == where


def test_dag_export_keeps_foreign_files(shop: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("print('mine')\n")
    with pytest.raises(HeadraceError, match="was not written by headrace export airflow"):
        export_dag(load_settings(flags={}, environ={}, folder=tmp_path), shop, SHOP, into=tmp_path)
    assert (tmp_path / "shop.py").read_text() == "print('mine')\n"
