"""Load pipelines by name or path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.spec import (
    Check,
    EventTime,
    TableName,
    Transform,
    check_pipeline,
    check_pipelines,
    find_pipeline,
    list_pipelines,
    load_pipeline,
)
from headrace.spec.loading.folders import BUILT_IN

Checker = Callable[..., Check]


def test_load_pipeline_reads_a_folder(pipeline: Path, tmp_path: Path) -> None:
    loaded = load_pipeline("mine", environ={}, folder=tmp_path)
    (stream,) = loaded.streams
    assert (loaded.name, loaded.about, loaded.folder, loaded.trigger_seconds) == ("mine", "a test", pipeline, 10.0)
    assert (stream.name, stream.topic, stream.partitions, stream.format) == ("charges", "charges", 3, "json")
    assert stream.table == TableName("raw", "charges")
    assert stream.event_time == EventTime("happened", "at", "s")
    assert stream.partition_by == (Transform("days", "created"), Transform("identity", "country"))
    assert (stream.generator, stream.every_seconds) == (pipeline / "generators/charges.py", 0.1)
    assert (stream.output, stream.commit_log, stream.avro_schema, stream.epoch_unit) == (None, None, None, "ms")


@pytest.mark.parametrize(
    ("written", "seconds"), [("0s", 0.0), ("500ms", 0.5), ("1.5s", 1.5), ("2m", 120.0), ("1h", 3600.0), ('"1 s"', 1.0)]
)
def test_trigger_is_a_duration(check: Checker, written: str, seconds: float) -> None:
    pipeline_read = check("trigger: 10s", f"trigger: {written}").pipeline
    assert pipeline_read
    assert pipeline_read.trigger_seconds == seconds


@pytest.mark.parametrize(
    ("every", "seconds"), [("", 0.1), (", every: 500ms", 0.5), (", every: 2s", 2.0), (", every: 1m", 60.0)]
)
def test_generator_has_an_interval(check: Checker, pipeline: Path, every: str, seconds: float) -> None:
    pipeline_read = check("generator: generators/charges.py", f"generator: {{file: generators/charges.py{every}}}").pipeline
    assert pipeline_read
    stream = pipeline_read.streams[0]
    assert (stream.generator, stream.every_seconds) == (pipeline / "generators/charges.py", seconds)


@pytest.mark.parametrize(
    ("written", "environ", "topic"),
    [
        ("${T}", {"T": "one"}, "one"),
        ("${T:-two}", {}, "two"),
        ("${T:-two}", {"T": ""}, "two"),
        ("${T:-two}", {"T": "12"}, "12"),
        ("a-${T:-two}-${U}", {"U": "x"}, "a-two-x"),
        ('"${T}"', {"T": "${U}"}, None),
    ],
)
def test_variables_are_expanded_once(check: Checker, written: str, environ: dict[str, str], topic: str | None) -> None:
    result = check("topic: charges", f"topic: {written}", environ=environ)
    assert (result.pipeline.streams[0].topic if result.pipeline else None) == topic


def test_variables_can_set_numbers_and_locations(check: Checker) -> None:
    environ = {"P": "7", "OUT": "s3://lake/out/"}
    pipeline_read = check(
        "partitions: 3", "partitions: ${P}\n    output: ${OUT:-}\n    commit_log: ${LOG:-}", environ=environ
    ).pipeline
    assert pipeline_read
    assert (pipeline_read.streams[0].partitions, pipeline_read.streams[0].output, pipeline_read.streams[0].commit_log) == (
        7,
        "s3://lake/out/",
        None,
    )


@pytest.mark.parametrize(
    ("written", "transform"),
    [
        ('"bucket(16, id)"', Transform("bucket", "id", 16)),
        ('"truncate( 4,`id` )"', Transform("truncate", "id", 4)),
        ("hours(kafka_timestamp)", Transform("hours", "kafka_timestamp")),
        ("hours(happened)", Transform("hours", "happened")),
        ("kafka_topic", Transform("identity", "kafka_topic")),
    ],
)
def test_partition_transforms_are_read(check: Checker, written: str, transform: Transform) -> None:
    pipeline_read = check("[days(created), country]", f"[{written}]").pipeline
    assert pipeline_read
    assert pipeline_read.streams[0].partition_by == (transform,)


@pytest.mark.parametrize(
    ("transform", "field_name"),
    [
        (Transform("identity", "a"), "a"),
        (Transform("hours", "a"), "a_hour"),
        (Transform("bucket", "a", 4), "a_bucket"),
        (Transform("truncate", "a", 4), "a_trunc"),
    ],
)
def test_partition_field_names_match_java(transform: Transform, field_name: str) -> None:
    assert transform.field_name == field_name


def test_avro_stream_keeps_its_schema_text(check: Checker, pipeline: Path) -> None:
    check("format: json\n    schema: schemas/charge.sql", "format: avro\n    schema: schemas/charge.avsc")
    pipeline_read = check("    partition_by: [days(created), country]\n", "").pipeline
    assert pipeline_read
    assert pipeline_read.streams[0].avro_schema == (pipeline / "schemas/charge.avsc").read_text()
    assert pipeline_read.streams[0].framing == "auto"
    refused = check("format: avro\n", "format: avro\n    framing: confluent\n")
    assert [error.what for error in refused.errors] == ["generators write plain Avro, which framing: confluent rejects"]
    check("    framing: confluent\n", "")
    check("    generator: generators/charges.py\n", "")
    for framing in ("confluent", "none", "auto"):
        pipeline_read = check("format: avro\n", f"format: avro\n    framing: {framing}\n").pipeline
        assert pipeline_read
        assert pipeline_read.streams[0].framing == framing
        check(f"    framing: {framing}\n", "")
    assert "framing" in str(check("format: avro\n", "format: avro\n    framing: glue\n").errors[0])


@pytest.mark.parametrize("argument", ["mine", "pipelines/mine", "./pipelines/mine/", "pipelines/mine/pipeline.yml"])
def test_find_pipeline_accepts_names_and_paths(pipeline: Path, tmp_path: Path, argument: str) -> None:
    assert find_pipeline(argument, folder=tmp_path) == pipeline
    assert find_pipeline(str(pipeline), folder=Path("/")) == pipeline
    assert find_pipeline(".", folder=pipeline) == pipeline


def test_find_pipeline_prefers_own_to_built_in_pipelines(pipeline: Path, tmp_path: Path) -> None:
    assert find_pipeline("lineage", folder=tmp_path) == BUILT_IN / "lineage"
    built_in = {listed.name: listed.built_in for listed in list_pipelines(tmp_path)}
    assert (built_in["lineage"], built_in["mine"]) == (True, False)
    shutil.copytree(BUILT_IN / "lineage", tmp_path / "pipelines" / "lineage")
    assert find_pipeline("lineage", folder=tmp_path) == tmp_path / "pipelines" / "lineage"


def test_unknown_pipeline_error_lists_the_known_ones(pipeline: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_pipeline("mien", environ={}, folder=tmp_path)
    assert str(caught.value) == ('not found: pipeline "mien"\nDid you mean "mine"? Or create it: headrace new mien')
    with pytest.raises(SpecError) as caught:
        load_pipeline("zzz", environ={}, folder=tmp_path)
    names = ", ".join(listed.name for listed in list_pipelines(tmp_path))
    assert caught.value.next_step == f"Pipelines are: {names}. Or create it: headrace new zzz"
    with pytest.raises(SpecError) as caught:
        load_pipeline("linage", environ={}, folder=tmp_path / "elsewhere")
    assert caught.value.next_step == (
        'Did you mean "lineage"? Or create it: headrace new linage. '
        "Your own pipelines are looked up in ./pipelines of the working folder, which does not exist"
    )
    with pytest.raises(SpecError) as caught:
        load_pipeline("./elsewhere", environ={}, folder=tmp_path)
    assert str(caught.value) == (
        "elsewhere: not found: pipeline.yml\nPass the folder of a pipeline, or create one: headrace new <name>"
    )


def test_folder_without_pipeline_yml_has_its_own_error(pipeline: Path, tmp_path: Path) -> None:
    (pipeline / "pipeline.yml").unlink()
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert str(error) == (
        "pipelines/mine: the pipeline's folder has no pipeline.yml\n"
        "Write pipeline.yml, or remove the folder and run: headrace new mine"
    )


def test_load_pipeline_raises_the_first_error_and_counts_the_others(pipeline: Path, tmp_path: Path) -> None:
    text = (pipeline / "pipeline.yml").read_text().replace("trigger: 10s", "trigger: x").replace("json", "xml")
    (pipeline / "pipeline.yml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_pipeline("mine", environ={}, folder=tmp_path)
    assert str(caught.value) == (
        'pipelines/mine/pipeline.yml:3: "x" is not a duration\n'
        "Write a duration such as 500ms, 10s or 1m, then run: headrace check mine\n"
        "1 more error in this pipeline."
    )


def test_check_rejects_two_pipelines_with_one_table(pipeline: Path, tmp_path: Path) -> None:
    other = pipeline.parent / "other"
    shutil.copytree(pipeline, other)
    (other / "pipeline.yml").write_text((other / "pipeline.yml").read_text().replace("name: mine", "name: other"))
    checks = {check.name: check for check in check_pipelines(environ={}, folder=tmp_path)}
    assert checks["mine"].errors == ()
    assert [str(error) for error in checks["other"].errors] == [
        'pipelines/other/pipeline.yml:10: pipeline "mine" already owns table raw.charges\n'
        "Set a different table, then run: headrace check other"
    ]
    for argument in ("mine", "other", "pipelines/other"):
        alone = check_pipeline(argument, environ={}, folder=tmp_path)
        assert [error.what for error in alone.errors] == [error.what for error in checks[alone.name].errors]


def test_check_rejects_a_table_of_a_built_in_pipeline(pipeline: Path, tmp_path: Path) -> None:
    elsewhere = pipeline.rename(tmp_path / "mine")
    text = (elsewhere / "pipeline.yml").read_text()
    (elsewhere / "pipeline.yml").write_text(text.replace("raw.charges", "lineage.events"))
    (error,) = check_pipeline("./mine", environ={}, folder=tmp_path).errors
    assert str(error).startswith('mine/pipeline.yml:10: pipeline "lineage" already owns table lineage.events\n')
