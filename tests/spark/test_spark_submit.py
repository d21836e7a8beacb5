"""Submit a pipeline to a cluster: what is sent, what is visible, and that no secret is."""

from __future__ import annotations

import re
import stat
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.app.submitting import describe, plan_submission, submit
from headrace.errors import SettingsError
from headrace.settings import load_settings
from headrace.spark import submit as spark_submit
from headrace.spark.submit import Submission, properties_text, run_submission
from headrace.spec import load_pipeline
from tests.support.shop import write_shop

SECRETS = {
    "HEADRACE_CATALOG_CREDENTIAL": "somebody:verysecret",
    "AWS_ACCESS_KEY_ID": "keynumber1",
    "AWS_SECRET_ACCESS_KEY": "alsosecret",
    "PGPASSWORD": "pgsecret1",
    "HEADRACE_POSTGRES_URL": "postgresql://headrace:urlsecret@db.example.com/analytics",
}
FILE = """
[kube]
warehouse = "s3://lake/warehouse"
catalog = {{type = "rest", uri = "https://catalog.example.com"}}
kafka = {{bootstrap_servers = "kafka.example.com:9092"}}
[kube.spark]
master = "{master}"
executor_memory = "2g"
python_archive = "environment.tar.gz"
[kube.spark.conf]
{conf}
"""
IMAGE = '"spark.kubernetes.container.image" = "headrace:0.2.0"'
UPLOADS = '"spark.kubernetes.file.upload.path" = "s3a://lake/uploads"'


def plan(
    folder: Path, master: str, *, name: str = "payments", conf: str = IMAGE, in_image: bool = False, **secrets: str
) -> tuple[Submission, str]:
    """Return how a pipeline would be submitted, and what a dry run shows."""
    (folder / "headrace.toml").write_text(FILE.format(master=master, conf=conf))
    environ = {**SECRETS, **secrets, "HEADRACE_PROFILE": "kube"}
    settings = load_settings(flags={}, environ=environ, folder=folder)
    pipeline = load_pipeline(name, environ=environ, folder=folder)
    planned = plan_submission(settings, pipeline, what="build", in_image=in_image, environ=environ, report=lambda said: None)
    return planned, "\n".join(describe(settings, planned))


def secret_parts() -> list[str]:
    return ["verysecret", "keynumber1", "alsosecret", "pgsecret1", "urlsecret"]


def test_submission_to_kubernetes_uses_the_image_and_its_secret(tmp_path: Path) -> None:
    planned, shown = plan(tmp_path, "k8s://https://kube.example.com")
    assert planned.arguments[-3:] == (spark_submit.IN_IMAGE, "build", "payments")
    assert planned.arguments[planned.arguments.index("--deploy-mode") + 1] == "cluster"
    assert not {"--jars", "--py-files", "--archives"} & {*planned.arguments}
    for name in SECRETS:
        assert planned.properties[f"spark.kubernetes.driver.secretKeyRef.{name}"] == f"headrace:{name}"
    assert not [part for part in secret_parts() if part in properties_text(planned.properties) or part in shown]
    sent = {name.rpartition(".")[2]: value for name, value in planned.properties.items() if ".driverEnv." in name}
    assert sent == {
        "HEADRACE_CATALOG_TYPE": "rest",
        "HEADRACE_CATALOG_URI": "https://catalog.example.com",
        "HEADRACE_SPARK_EXECUTOR_MEMORY": "2g",
        "HEADRACE_SPARK_MASTER": "k8s://https://kube.example.com",
        "HEADRACE_WAREHOUSE": "s3://lake/warehouse",
        "KAFKA_BOOTSTRAP_SERVERS": "kafka.example.com:9092",
    }
    assert planned.properties["spark.executor.memory"] == "2g"


def test_submission_to_kubernetes_with_a_pipeline_needs_an_upload_path(tmp_path: Path) -> None:
    write_shop(tmp_path)
    with pytest.raises(SettingsError, match=r"container\.image is not set"):
        plan(tmp_path, "k8s://https://kube.example.com", conf="")
    with pytest.raises(SettingsError, match="pods can't read the pipeline shop"):
        plan(tmp_path, "k8s://https://kube.example.com", name="shop")
    inside, _ = plan(tmp_path, "k8s://https://kube.example.com", name="shop", in_image=True)
    assert "--archives" not in inside.arguments
    sent, _ = plan(tmp_path, "k8s://https://kube.example.com", name="shop", conf=f"{IMAGE}\n{UPLOADS}")
    archive = Path(sent.arguments[sent.arguments.index("--archives") + 1].partition("#")[0])
    names = zipfile.ZipFile(archive).namelist()
    assert {"headrace.toml", "pipelines/shop/pipeline.yml", "pipelines/shop/staging/charges.sql"} <= {*names}
    assert sent.properties["spark.kubernetes.driverEnv.HEADRACE_PROFILE"] == "kube"


def test_submission_to_yarn_sends_code_and_keeps_secrets_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headrace.app.submitting.spark_jars", lambda settings, report: (Path("/jars/a.jar"), Path("/jars/b.jar"))
    )
    planned, shown = plan(tmp_path, "yarn", conf="")
    given = dict(zip(planned.arguments, planned.arguments[1:], strict=False))
    assert given["--jars"] == "/jars/a.jar,/jars/b.jar"
    assert "headrace/submitted/main.py" in zipfile.ZipFile(given["--py-files"]).namelist()
    assert given["--archives"].endswith("settings.zip#headrace_pipeline,environment.tar.gz#headrace_environment")
    assert planned.properties["spark.pyspark.python"] == "./headrace_environment/bin/python"
    for name, value in SECRETS.items():
        assert planned.properties[f"spark.yarn.appMasterEnv.{name}"] == value
    assert not [part for part in secret_parts() if part in " ".join(planned.arguments) or part in shown]
    assert "***" in shown


@pytest.mark.parametrize(
    "address",
    [
        "host=db.example.com dbname=analytics user=u password=hunter2",
        "host=db.example.com password = 'hunter2'",
        "postgresql://db.example.com/analytics?user=u&password=hunter2",
        "postgresql://db.example.com/analytics?user=u&pass%77ord=hunter2",
        "postgresql://u:hunter2?@db.example.com/analytics",
        "postgresql://u@db.example.com/analytics?sslpassword=hunter2",
        "host=db.example.com password='hunter2",  # nobody can say which part of it is the password
    ],
)
def test_password_is_found_wherever_libpq_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr("headrace.app.submitting.spark_jars", lambda settings, report: ())
    planned, shown = plan(tmp_path, "k8s://https://kube.example.com", HEADRACE_POSTGRES_URL=address)
    assert planned.properties["spark.kubernetes.driver.secretKeyRef.HEADRACE_POSTGRES_URL"] == "headrace:HEADRACE_POSTGRES_URL"
    assert "hunter2" not in properties_text(planned.properties) + shown
    planned, shown = plan(tmp_path, "yarn", conf="", HEADRACE_POSTGRES_URL=address)
    assert planned.properties["spark.yarn.appMasterEnv.HEADRACE_POSTGRES_URL"] == address
    assert "hunter2" not in shown


def test_dry_run_redacts_escaped_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.app.submitting.spark_jars", lambda settings, report: ())
    _, shown = plan(
        tmp_path, "yarn", conf="", PGPASSWORD="hunter\\2", AWS_SECRET_ACCESS_KEY="hünter2", HEADRACE_KAFKA_PASSWORD="h2"
    )
    hidden = [line for line in shown.splitlines() if line.endswith("=***")]
    assert {"spark.yarn.appMasterEnv.PGPASSWORD=***", "spark.yarn.appMasterEnv.HEADRACE_KAFKA_PASSWORD=***"} <= {*hidden}
    assert "hunter" not in shown
    assert "nter2" not in shown


def test_redaction_covers_every_secret_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark does: the value of a name or of a value in which the pattern is found is not shown."""
    monkeypatch.setattr("headrace.app.submitting.spark_jars", lambda settings, report: ())
    planned, _ = plan(
        tmp_path,
        "yarn",
        conf="",
        HEADRACE_KAFKA_USERNAME="somename",
        HEADRACE_KAFKA_PASSWORD="pw2",
        HEADRACE_REGISTRY_URL="http://u:hunter2@registry",
    )
    hides = re.compile(planned.properties["spark.redaction.regex"])
    seen = {name: value for name, value in planned.properties.items() if not hides.search(name) and not hides.search(value)}
    assert not [part for part in (*secret_parts(), "somename", "hunter2") if part in properties_text(seen)]
    assert {"spark.executor.memory", "spark.yarn.appMasterEnv.HEADRACE_WAREHOUSE"} <= {*seen}
    assert hides.search("jdbc:postgresql://u:hunter2@host/db")
    assert not hides.search("spark://host:7077")


def test_submission_to_standalone_runs_the_driver_locally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.app.submitting.spark_jars", lambda settings, report: ())
    planned, shown = plan(tmp_path, "spark://spark.example.com:7077", conf="")
    assert planned.arguments[planned.arguments.index("--deploy-mode") + 1] == "client"
    assert not [part for part in secret_parts() if part in properties_text(planned.properties) or part in shown]
    assert "#headrace_code" in planned.properties["spark.archives"]


def test_submission_to_a_local_master_uses_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.app.submitting.spark_jars", lambda settings, report: ())
    planned, _ = plan(tmp_path, "local[2]", conf="")
    assert planned.arguments[planned.arguments.index("--master") + 1] == "local[2,4]"
    assert planned.properties["spark.pyspark.python"] == sys.executable


def test_properties_file_is_private_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    program = tmp_path / "spark-submit"
    program.write_text(
        f'#!/bin/bash\nprintf "%s\\n" "$@" > {report}\nstat -c %a "$(dirname "$2")" >> {report}\ncat "$2" >> {report}\nexit 7\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(spark_submit, "find_spark_submit", lambda: program)
    submitted = Submission(("--master", "yarn", "main.py"), {"spark.secret": "verysecret"})
    assert run_submission(submitted, java_home=tmp_path, folder=tmp_path) == 7
    lines = report.read_text().splitlines()
    assert lines[0] == "--properties-file"
    assert not Path(lines[1]).exists()
    assert lines[2:] == ["--master", "yarn", "main.py", "700", "spark.secret=verysecret"]


def test_submission_includes_cluster_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack's secret is in a file there: without it the master lets nobody in."""
    report, program = tmp_path / "report", tmp_path / "spark-submit"
    program.write_text(f'#!/bin/bash\nprintf "%s" "$SPARK_CONF_DIR" > {report}\n')
    program.chmod(0o700)
    monkeypatch.setattr(spark_submit, "find_spark_submit", lambda: program)
    monkeypatch.setattr("headrace.app.submitting.find_java_home", lambda environ, cache: tmp_path)
    monkeypatch.setenv("SPARK_CONF_DIR", "/somebody's")
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    for conf_dir, wanted in ((None, "/somebody's"), (tmp_path / "conf", str(tmp_path / "conf"))):
        assert submit(replace(settings, spark_conf_dir=conf_dir), Submission(("main.py",), {})) == 0
        assert report.read_text() == wanted


def test_properties_text_round_trip() -> None:
    text = properties_text({"a": " led by a space", "b": "back\\slash\nline", "c": "ünï🙂", "d": "k=v:#!"})
    assert text.splitlines() == ["a=\\ led by a space", "b=back\\\\slash\\nline", "c=\\u00fcn\\u00ef\\ud83d\\ude42", "d=k=v:#!"]
