"""The Dockerfile without an engine: each instruction, each source, who runs it, and what the image starts."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from deploy import link_jars
from headrace.settings import load_settings
from headrace.spark.session import spark_groups
from headrace.spec import load_pipeline

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = {"FROM", "ARG", "RUN", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT", "CMD"}
SPARK = {
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_JAVA_OPT_0": "-Dname=with a space",
    "SPARK_JAVA_OPT_1": "-Dsecond=2",
}


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str
    stage: str


def instructions() -> list[Instruction]:
    """Return what the Dockerfile says, line by line, each with the stage that it is of."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    listed: list[Instruction] = []
    stage = ""
    for line in filter(str.strip, lines):
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = rest.split(" AS ")[1]
        listed.append(Instruction(word, re.sub(r"\s+", " ", rest.strip()), stage))
    return listed


def of_stage(stage: str, word: str) -> list[str]:
    return [instruction.rest for instruction in instructions() if (instruction.stage, instruction.word) == (stage, word)]


def test_it_says_what_dockerfiles_say_from_pinned_bases() -> None:
    assert {instruction.word for instruction in instructions()} <= INSTRUCTIONS
    stages: list[str] = []
    for base in [instruction.rest for instruction in instructions() if instruction.word == "FROM"]:
        image, name = base.split(" AS ")
        assert image in stages or re.fullmatch(r"[a-z/-]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}", image), image
        stages.append(name)
    assert {"headrace", "dagster"} <= {*stages}
    targets = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    assert {target["build"]["target"] for target in targets if "build" in target} <= {*stages}


def test_every_source_is_there_and_reaches_the_engine() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*", "all but what is named stays here"
    sent = [line[1:] for line in ignored if line.startswith("!")]
    copied: list[str] = []
    for copy in [copy for copy in instructions() if copy.word == "COPY"]:
        words = [word for word in copy.rest.split() if not word.startswith("--")]
        stage = re.search(r"--from=(\S+)", copy.rest)
        if stage:
            assert stage[1] in {one.stage for one in instructions()}
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source
            assert any(fnmatch.fnmatch(source, pattern) for pattern in sent), f"{source} is left out by .dockerignore"
            copied.append(source)
    assert {*sent} == {*copied}, "nothing is sent that is not used"


@pytest.mark.parametrize("stage", ["headrace", "dagster"])
def test_it_is_not_run_as_root_and_has_no_secrets(stage: str) -> None:
    assert of_stage(stage, "USER")[-1] == "10001"
    for instruction in instructions():
        assert not (
            instruction.word in ("ENV", "ARG") and re.search(r"(?i)password|secret|token|credential|_key", instruction.rest)
        ), instruction


def test_spark_is_where_the_image_says() -> None:
    version = re.search(
        r"python:(\d+\.\d+)", next(instruction.rest for instruction in instructions() if instruction.stage == "headrace")
    )
    assert version
    environment = " ".join(of_stage("headrace", "ENV"))
    assert f"SPARK_HOME=/opt/headrace/lib/python{version[1]}/site-packages/pyspark" in environment


def test_spark_finds_the_jars_that_a_submitted_driver_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(group: str, **_: object) -> tuple[Path, ...]:
        asked.append(group)
        return (tmp_path / f"{group}-1.0.jar", tmp_path / "shared-1.0.jar")

    monkeypatch.setattr(link_jars, "resolve_jars", resolve)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/shared-1.0.jar").write_bytes(b"Spark's own")
    link_jars.link_jars(tmp_path / "jars")
    settings = load_settings(flags={}, environ={"HEADRACE_WAREHOUSE": "s3://lake"}, folder=tmp_path)
    assert {*asked} >= {*spark_groups(settings), "postgres"}
    assert not (tmp_path / "jars/shared-1.0.jar").is_symlink()
    assert (tmp_path / "jars/aws-1.0.jar").readlink() == tmp_path / "aws-1.0.jar"


def test_dagster_loads_the_files_that_the_image_has(tmp_path: Path) -> None:
    exported = re.search(r"for pipeline in ([a-z ]+);", " ".join(of_stage("dagster", "RUN")))
    assert exported
    names = exported[1].split()
    workspace = yaml.safe_load((ROOT / "deploy/compose/workspace.yaml").read_text(encoding="utf-8"))["load_from"]
    places = [location["python_file"] for location in workspace]
    assert [(place["relative_path"], place["location_name"]) for place in places] == [
        (f"/opt/dagster/defs/{name}.py", name) for name in names
    ]
    assert all(load_pipeline(name, environ={}, folder=tmp_path).tables for name in names)


def start(tmp_path: Path, *arguments: str) -> list[str]:
    """Return the program and the arguments that the image would run, with programs that only tell what they were given."""
    for name in ("spark/bin/spark-class", "spark/bin/spark-submit", "java/bin/java", "bin/headrace"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{path.name}"\nprintf "%s\\n" "$@"\n')
        path.chmod(0o755)
    environ = {
        **SPARK,
        "SPARK_HOME": str(tmp_path / "spark"),
        "JAVA_HOME": str(tmp_path / "java"),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ROOT / "deploy/entrypoint.sh", *arguments], env=environ, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.splitlines()


def test_image_runs_headrace_and_parts_of_a_cluster(tmp_path: Path) -> None:
    assert start(tmp_path, "run", "payments") == ["headrace", "run", "payments"]
    assert start(tmp_path) == ["headrace", ""]
    assert start(tmp_path, "master", "--port", "7077")[:2] == ["spark-class", "org.apache.spark.deploy.master.Master"]
    assert start(tmp_path, "worker", "spark://m:7077")[1:] == ["org.apache.spark.deploy.worker.Worker", "spark://m:7077"]


def test_image_runs_what_spark_on_kubernetes_asks_for(tmp_path: Path) -> None:
    driver = start(tmp_path, "driver", "--properties-file", "/opt/spark/conf/spark.properties", "local:///main.py")
    assert driver[:5] == ["spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.7"]
    assert driver[-1] == "local:///main.py"
    executor = start(tmp_path, "executor")
    assert executor[:5] == ["java", "-Dname=with a space", "-Dsecond=2", "-Xms1g", "-Xmx1g"]
    assert executor[7] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(executor[8::2], executor[9::2], strict=True))
    assert (pairs["--driver-url"], pairs["--executor-id"], pairs["--podName"]) == (SPARK["SPARK_DRIVER_URL"], "3", "exec-3")
    assert pairs.keys() == {
        *("--driver-url", "--executor-id", "--cores", "--app-id", "--hostname", "--resourceProfileId", "--podName")
    }
