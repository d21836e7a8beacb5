"""Submit a Headrace command to a cluster with spark-submit.

On YARN and Kubernetes the driver runs in the cluster. A standalone cluster supports no Python drivers: there, and on a local
master, the driver runs here. All settings are in a file that only its owner can read, because the list of processes shows
arguments. On Kubernetes secrets are not sent at all: pods read them from a Secret of the cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import ServiceError
from headrace.settings import (
    ADDRESS_FIELDS,
    FILE,
    LOCAL,
    REDACTED,
    SECRETS,
    SETTING_SPECS,
    Settings,
    passwords_in,
    read_profile,
)
from headrace.spark.master import on_a_cluster, on_this_machine, pack_code, with_retries

MAIN = Path(__file__).resolve().parent.parent / "submitted" / "main.py"
IN_IMAGE = "local:///opt/headrace/lib/python3.12/site-packages/headrace/submitted/main.py"
"""The same file in the image of the Dockerfile."""

SECRET = "headrace"
"""The Kubernetes Secret with the secrets, by the names of their variables: deploy/kubernetes/secret.yaml.template."""

_PIPELINE, _ENVIRONMENT = "headrace_pipeline", "headrace_environment"
_NOT_SENT = ("home", "spark.master", "spark.driver_host", "spark.python_archive")
_BESIDE_SETTINGS = ("PGPASSWORD",)
_BEGINNING = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Submission:
    """The arguments and properties of spark-submit.

    `arguments` are publicly visible. `properties` go into the file of `--properties-file`; those named in `secrets` are
    secrets.
    """

    arguments: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = frozenset()


def submission(
    settings: Settings,
    *,
    name: str,
    command: Sequence[str],
    folder: Path | None,
    jars: Sequence[Path],
    environ: Mapping[str, str],
) -> Submission:
    """Return the submission of a command. `folder` is an archive of the driver's working folder, or None to use the image's.

    On Kubernetes Headrace and the jars come from the image.
    """
    shared = {**_resources(settings), "spark.redaction.regex": REDACTED, **settings.spark_conf}
    begin = ["--master", with_retries(settings.spark_master), "--name", f"headrace-{name}", "--load-spark-defaults"]
    listed = ",".join(str(jar) for jar in jars)
    archives = [f"{folder}#{_PIPELINE}"] if folder else []
    plain, secret = _driver_environment(settings, environ, has_file=folder is not None)
    if settings.spark_master.startswith("k8s://"):
        sent = {f"spark.kubernetes.driverEnv.{name}": value for name, value in plain.items()}
        sent |= {f"spark.kubernetes.driver.secretKeyRef.{name}": f"{SECRET}:{name}" for name in secret}
        along = ["--archives", *archives] if archives else []
        return Submission((*begin, "--deploy-mode", "cluster", *along, IN_IMAGE, *command), {**shared, **sent})
    if settings.spark_master == "yarn":
        python = settings.spark_python or sys.executable
        if settings.spark_python_archive:
            archives.append(f"{settings.spark_python_archive}#{_ENVIRONMENT}")
            python = f"./{_ENVIRONMENT}/bin/python"
        sent = {
            f"spark.yarn.appMasterEnv.{name}": value for name, value in {**plain, **secret, "PYSPARK_PYTHON": python}.items()
        }
        along = ["--py-files", str(pack_code(settings.home / "spark")), "--jars", listed]
        along += ["--archives", ",".join(archives)] if archives else []
        arguments = (*begin, "--deploy-mode", "cluster", *along, str(MAIN), *command)
        hidden = frozenset(f"spark.yarn.appMasterEnv.{name}" for name in secret)
        return Submission(arguments, {**shared, **sent, "spark.pyspark.python": python}, hidden)
    where = {"spark.pyspark.python": sys.executable, **on_this_machine()} if settings.is_local else on_a_cluster(settings)
    return Submission((*begin, "--deploy-mode", "client", "--jars", listed, str(MAIN), *command), {**shared, **where})


def run_submission(submitted: Submission, *, java_home: Path, folder: Path, conf_dir: Path | None = None) -> int:
    """Run spark-submit and return its exit code. The properties file is deleted afterwards. `conf_dir` has the cluster's
    credentials."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as own:  # readable by its owner only
        path = Path(own) / "spark.properties"
        path.write_text(properties_text(submitted.properties), encoding="utf-8")
        environ = {**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_DRIVER_PYTHON": sys.executable}
        environ |= {"SPARK_CONF_DIR": str(conf_dir)} if conf_dir else {}
        done = subprocess.run(command_line(submitted, properties=path), cwd=folder, env=environ, check=False)
        return done.returncode


def command_line(submitted: Submission, *, properties: Path | str) -> list[str]:
    """Return the command line; `properties` is the path of the properties file."""
    return [str(find_spark_submit()), "--properties-file", str(properties), *submitted.arguments]


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties in the format of a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(properties.items()))


def pack_folder(settings: Settings, pipeline: Path | None) -> Path:
    """Return an archive of headrace.toml and optionally a pipeline's folder, the working folder of a remote driver."""
    archive_path = settings.home / "submit" / f"{pipeline.name if pipeline else 'settings'}.zip"
    archive_path.parent.mkdir(parents=True, exist_ok=True)
    inside = sorted(pipeline.rglob("*")) if pipeline else ()
    files = {f"pipelines/{pipeline.name}/{path.relative_to(pipeline)}": path for path in inside} if pipeline else {}
    with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in {**files, FILE: settings.folder / FILE}.items():
            if path.is_file() and "__pycache__" not in path.parts:
                archive.writestr(zipfile.ZipInfo(name, date_time=_BEGINNING), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive_path


def find_spark_submit() -> Path:
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    if not program.exists():
        raise ServiceError(
            "not found: spark-submit", where=str(program), next_step="Run: pip install --force-reinstall pyspark"
        )
    return program


def _resources(settings: Settings) -> dict[str, str]:
    properties = {"spark.driver.memory": settings.spark_driver_memory, "spark.executor.memory": settings.spark_executor_memory}
    if settings.spark_executor_cores:
        properties["spark.executor.cores"] = str(settings.spark_executor_cores)
    return {name: value for name, value in properties.items() if value}


def _driver_environment(
    settings: Settings, environ: Mapping[str, str], *, has_file: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment variables of a remote driver: plain ones, and secrets.

    They include the settings of the local headrace.toml, which the driver's image lacks.
    """
    from_file = read_profile(settings.folder / FILE, profile=settings.profile)
    values = {
        setting.environ: environ.get(setting.environ) or from_file.get(setting.name, "")
        for setting in SETTING_SPECS
        if setting.name not in _NOT_SENT
    }
    values["HEADRACE_SPARK_MASTER"] = settings.spark_master
    values["HEADRACE_PROFILE"] = settings.profile if has_file and settings.profile != LOCAL else ""
    secret = {name: environ.get(name, "") for name in (*SECRETS.values(), *_BESIDE_SETTINGS)}
    secret |= {name: value for name, value in values.items() if settings.without_secrets(value) != value}
    secret |= {name: values[name] for name in ADDRESS_FIELDS if passwords_in(values.get(name, ""))}
    plain = {name: value for name, value in values.items() if name not in secret}
    return {name: value for name, value in plain.items() if value}, {name: value for name, value in secret.items() if value}


def _escaped(value: str) -> str:
    """Return a value escaped for a properties file."""
    plain = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "".join(
        char if char.isascii() else "".join(f"\\u{unit:04x}" for unit in _utf16(char)) for char in _escape_start(plain)
    )


def _escape_start(text: str) -> str:
    return f"\\{text}" if text.startswith(" ") else text


def _utf16(char: str) -> list[int]:
    data = char.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
