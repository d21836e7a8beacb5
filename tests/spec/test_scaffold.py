"""New pipelines as copies of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.spec import check_pipeline, check_pipelines, copy_pipeline, list_pipelines, load_pipeline
from tests.support.folders import write_files


def test_copy_of_every_built_in_pipeline_passes_check(tmp_path: Path) -> None:
    sources = {f"my_{pipeline.name}": pipeline.name for pipeline in list_pipelines(Path("/nowhere"))}
    for name, source in sources.items():
        assert copy_pipeline(source, target_name=name, folder=tmp_path) == tmp_path / "pipelines" / name
    checks = check_pipelines(environ={}, folder=tmp_path)
    assert [str(error) for check in checks for error in check.errors] == []
    assert {*sources, *sources.values()} <= {check.name for check in checks}
    for name, source in sources.items():
        original = load_pipeline(source, environ={}, folder=tmp_path)
        copied = load_pipeline(name, environ={}, folder=tmp_path)
        assert {stream.topic for stream in original.streams}.isdisjoint(stream.topic for stream in copied.streams)
    assert {*os.listdir(tmp_path / "pipelines")} == sources.keys()


def test_copy_of_lineage_has_its_own_names(tmp_path: Path) -> None:
    copy = copy_pipeline("lineage", target_name="mine", folder=tmp_path)
    yaml = (copy / "pipeline.yml").read_text()
    assert "topic: ${MINE_KAFKA_TOPIC:-mine-input}\n" in yaml
    assert "output: ${MINE_OUTPUT_PATH:-}  " in yaml
    assert "table: mine.events\n" in yaml
    readme = (copy / "README.md").read_text()
    assert readme.startswith("# mine\n")
    assert "headrace demo mine " in readme
    assert "FROM mine.events" in readme
    assert "`MINE_OUTPUT_PATH`" in readme
    assert "`KAFKA_BOOTSTRAP_SERVERS`" in readme
    assert "lineage" not in readme
    assert '"kafka_topic": "mine-input"' in (copy / "expected/events.jsonl").read_text()


def test_copy_of_weather_publishes_to_its_own_table(tmp_path: Path) -> None:
    copy = copy_pipeline("weather", target_name="mine", folder=tmp_path)
    (published,) = load_pipeline("mine", environ={}, folder=tmp_path).serving.postgres
    assert (published.name, str(published.source)) == ("mine", "mine_default.weather_by_minute")
    assert "CREATE TABLE IF NOT EXISTS mine (" in published.ddl
    assert "ON mine (last_updated)" in published.ddl
    assert "FROM mine_default.weather\n" in (copy / "windows/weather_by_minute.sql").read_text()


def test_copy_of_storefront_queries_its_own_table(tmp_path: Path) -> None:
    copy_pipeline("storefront", target_name="mine", folder=tmp_path)
    capture = load_pipeline("mine", environ={}, folder=tmp_path).capture
    assert capture is not None
    assert capture.by_hand is not None
    assert "FROM serve.mine.product_performance" in capture.by_hand.see


def test_copies_with_http_sources_have_their_own_ports(tmp_path: Path) -> None:
    owners = {}
    for name in ("mine", "yours"):
        copy = copy_pipeline("weather", target_name=name, folder=tmp_path)
        http = load_pipeline(name, environ={}, folder=tmp_path).http
        assert http is not None
        owners[name] = http.port
        readme = (copy / "README.md").read_text()
        assert f'curl "http://127.0.0.1:{http.port}/log' in readme
        assert f"http://127.0.0.1:3000/{name}`" in readme
        assert f"`GET /api/{name}`" in readme
        for text in (readme, (copy / "pipeline.yml").read_text()):
            assert "9998" not in text
            assert "/weather" not in text.replace("windows/weather", "").replace("serving/weather", "")
    assert owners == {"mine": 9999, "yours": 10_000}


def test_copy_renames_the_variable_of_a_port(pipeline: Path, tmp_path: Path) -> None:
    sources = "sources: {http: {file: sources/log.py, port: '${PORT:-8080}'}}  # here\n"
    (pipeline / "pipeline.yml").write_text(sources + (pipeline / "pipeline.yml").read_text())
    copy = copy_pipeline("mine", target_name="yours", folder=tmp_path)
    changed = (copy / "pipeline.yml").read_text()
    assert changed.startswith('sources: {http: {file: sources/log.py, port: "${YOURS_PORT:-8081}"}}  # here\n')


def test_copy_renames_tables_in_python_strings_only(pipeline: Path, tmp_path: Path) -> None:
    served = "serving: {postgres: {charges: {from: marts.daily, ddl: serving/charges.sql}}, pages: serving/pages.py}\n"
    write_files(
        pipeline,
        {
            "pipeline.yml": (pipeline / "pipeline.yml").read_text() + served,
            "marts/daily.sql": "/* keys: [id] */ SELECT id, count(*) AS n FROM raw.charges GROUP BY id",
            "serving/charges.sql": "CREATE TABLE charges (id TEXT PRIMARY KEY, n BIGINT)",
            "serving/pages.py": "# reads charges, not raw.charges\nimport json as raw\nname = raw.charges\n"
            'all = "SELECT n FROM charges, x"\n'
            'lake = f"""SELECT {name}\nFROM raw.charges JOIN marts.daily"""\nplain = "charges"\n',
        },
    )
    copy = copy_pipeline("mine", target_name="yours", folder=tmp_path)
    assert (copy / "serving/pages.py").read_text() == (
        "# reads charges, not yours_raw.charges\nimport json as raw\nname = raw.charges\n"
        'all = "SELECT n FROM yours_charges, x"\n'
        'lake = f"""SELECT {name}\nFROM yours_raw.charges JOIN yours_marts.daily"""\nplain = "charges"\n'
    )
    assert check_pipeline("yours", environ={}, folder=tmp_path).errors == ()


def test_copy_of_payments_has_its_own_names_and_generators(tmp_path: Path) -> None:
    copy = copy_pipeline("payments", target_name="mine", folder=tmp_path)
    yaml = (copy / "pipeline.yml").read_text()
    assert "topic: mine-payment_charges\n" in yaml
    assert "table: mine_payments_db.payment_refunds\n" in yaml
    readme = (copy / "README.md").read_text()
    assert readme.startswith("# mine\n")
    assert "headrace generate mine.charges" in readme
    assert "payments." not in readme
    assert "FROM mine_payments_db.payments_daily" in readme
    assert "namespace: mine_payments_db " in yaml
    cleaned = (copy / "cleaned/payment_charges_cleaned.sql").read_text()
    assert "FROM mine_payments_db.payment_charges" in cleaned
    assert not any(check.errors for check in check_pipelines(environ={}, folder=tmp_path))
    assert "FROM mine_payments_db.payments_daily" in yaml
    assert "payments_db." not in yaml.replace("mine_payments_db.", "")
    assert {path.name for path in (copy / "expected").iterdir() if path.is_dir()} == {
        table.layer for table in load_pipeline("mine", environ={}, folder=tmp_path).tables
    }
    assert (copy / "generators/world.py").exists()


def test_copy_of_a_copy_passes_check(tmp_path: Path) -> None:
    copy_pipeline("lineage", target_name="mine", folder=tmp_path)
    copy = copy_pipeline("mine", target_name="yours", folder=tmp_path)
    assert "topic: ${YOURS_KAFKA_TOPIC:-yours-input}\n" in (copy / "pipeline.yml").read_text()
    assert all(not check.errors for check in check_pipelines(environ={}, folder=tmp_path))


def test_copy_renames_names_without_the_pipeline_name(pipeline: Path, tmp_path: Path) -> None:
    text = (pipeline / "pipeline.yml").read_text()
    places = "    output: 's3://lake/${ZONE}/out/' # here\n    commit_log: &log ${LOG:-/log}\n"
    (pipeline / "pipeline.yml").write_text(text + places)
    (pipeline / "marts").mkdir()
    (pipeline / "marts/daily.sql").write_text(
        "/* kind: append */ SELECT c.id AS charges FROM raw.charges c WHERE c.id = 'charges'"
    )
    (pipeline / "README.md").write_bytes("# mine\nOf mine: charges, `raw.charges`, `headrace mine`.\r\n\xff".encode("latin-1"))
    copy = copy_pipeline("mine", target_name="yours", folder=tmp_path)
    changed = (copy / "pipeline.yml").read_text()
    assert "topic: yours-charges\n" in changed
    assert "table: yours_raw.charges\n" in changed
    assert '    output: "s3://lake/${ZONE}/out-yours" # here\n    commit_log: &log ${YOURS_LOG:-/log-yours}\n' in changed
    assert "FROM yours_raw.charges c WHERE c.id = 'charges'" in (copy / "yours_marts/daily.sql").read_text()
    assert (copy / "README.md").read_bytes() == (
        "# yours\nOf mine: charges, `yours_raw.charges`, `headrace mine`.\r\n\xff".encode("latin-1")
    )
    checks = check_pipelines(environ={"ZONE": "eu"}, folder=tmp_path)
    assert [str(error) for check in checks for error in check.errors] == []


RULE = "Use lower-case letters, digits and _, with a letter first: headrace new mine"


@pytest.mark.parametrize(
    ("name", "what", "next_step"),
    [
        ("My-Copy", '"My-Copy" is not a valid pipeline name', RULE),
        ("../up", '"../up" is not a valid pipeline name', RULE),
        ("metadata", 'the name "metadata" is reserved for Headrace\'s own tables', "Choose another name: headrace new mine"),
        ("mine", "pipelines/mine: the folder already exists", "Choose another name, or remove the folder first."),
        (
            "lineage",
            '"lineage" is the name of a built-in pipeline',
            "Choose another name: headrace new my_lineage --from lineage",
        ),
    ],
)
def test_copy_rejects_an_invalid_name_and_writes_nothing(
    pipeline: Path, tmp_path: Path, name: str, what: str, next_step: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SpecError) as caught:
        copy_pipeline("lineage", target_name=name, folder=tmp_path)
    assert str(caught.value) == f"{what}\n{next_step}"
    assert sorted(tmp_path.rglob("*")) == before


def test_copy_rejects_an_unknown_source(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        copy_pipeline("linaege", target_name="mine", folder=tmp_path)
    assert str(caught.value) == '--from: not found: pipeline "linaege"\nDid you mean "lineage"?'
    assert list(tmp_path.iterdir()) == []
