"""Submit a pipeline to the cluster of a profile."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from headrace.errors import SettingsError
from headrace.servers.embedded import Report
from headrace.servers.java import find_java_home
from headrace.settings import Settings
from headrace.spark.session import spark_jars
from headrace.spark.submit import (
    Submission,
    command_line,
    pack_folder,
    properties_text,
    run_submission,
    submission,
)
from headrace.spec.loading.folders import BUILT_IN
from headrace.spec.model.pipeline import Pipeline

SubmitCommand = Literal["run", "land", "build"]
_COMMANDS: Mapping[SubmitCommand, tuple[str, ...]] = {"run": (), "land": ("--once",), "build": ()}
_UPLOAD, _IMAGE = "spark.kubernetes.file.upload.path", "spark.kubernetes.container.image"
PROPERTIES = "spark.properties"


def plan_submission(
    settings: Settings, pipeline: Pipeline, *, what: SubmitCommand, in_image: bool, environ: Mapping[str, str], report: Report
) -> Submission:
    """Return how to submit a pipeline. Raises a SettingsError if the profile can't run it."""
    on_kubernetes, on_yarn = settings.spark_master.startswith("k8s://"), settings.spark_master == "yarn"
    own = pipeline.folder if not pipeline.folder.is_relative_to(BUILT_IN) else None
    uploads = on_yarn or _UPLOAD in settings.spark_conf
    if on_kubernetes:
        _check_kubernetes(settings, own if not in_image else None, uploads=uploads)
    in_cluster = on_kubernetes or on_yarn
    return submission(
        settings,
        name=pipeline.name,
        command=(what, pipeline.name if in_cluster or own is None else str(own), *_COMMANDS[what]),
        folder=pack_folder(settings, own) if in_cluster and uploads and not in_image else None,
        jars=() if on_kubernetes else spark_jars(settings, report=report),
        environ=environ,
    )


def _check_kubernetes(settings: Settings, own: Path | None, *, uploads: bool) -> None:
    where = f"spark.conf of profile {settings.profile}"
    if _IMAGE not in settings.spark_conf:
        raise SettingsError(
            f"{_IMAGE} is not set",
            where=where,
            next_step=f"Build an image with the Dockerfile, and set {_IMAGE} under [{settings.profile}.spark.conf].",
        )
    if own is not None and not uploads:
        raise SettingsError(
            f"pods can't read the pipeline {own.name}",
            where=str(own),
            next_step="Copy it to the image's /srv/headrace/pipelines and pass --in-image, "
            f"or set {_UPLOAD} to a place for uploads.",
        )
    if settings.catalog_properties and not uploads:
        raise SettingsError(
            f"catalog.properties requires {_UPLOAD} on Kubernetes",
            where=where,
            next_step=f"Set {_UPLOAD} to a place for uploads, or use the ConfigMap of deploy/kubernetes.",
        )


def describe(settings: Settings, submitted: Submission) -> list[str]:
    """Return the command and its properties without secrets."""
    shown = {
        name: "***" if name in submitted.secrets else settings.without_secrets(value)
        for name, value in submitted.properties.items()
    }
    command = shlex.join(command_line(submitted, properties=PROPERTIES))
    return [command, "", f"# {PROPERTIES}", *properties_text(shown).splitlines()]


def submit(settings: Settings, submitted: Submission) -> int:
    """Return the exit code, once the cluster has accepted the submission or a local driver has ended."""
    java = find_java_home(os.environ, cache=settings.home / "java")
    return run_submission(submitted, java_home=java, folder=settings.folder, conf_dir=settings.spark_conf_dir)
