"""Check pipelines without a JVM, and report all mistakes rather than the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import absolute, list_pipelines
from headrace.spec.loading.imports import check_imports
from headrace.spec.loading.loader import read_pipeline
from headrace.spec.loading.owners import Owners, find_conflicts, find_owners
from headrace.spec.loading.samples import check_samples
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Problems


@dataclass(frozen=True)
class Check:
    """The result of a check: the pipeline if it is valid, else its errors by file and line."""

    name: str
    pipeline: Pipeline | None
    errors: tuple[SpecError, ...]


def check_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> Check:
    """Return the pipeline that a name or path refers to in `folder`, or all of its errors.

    Pipelines may read the same topic. Writing a table or a location that another pipeline owns is an error.
    """
    return _check(name_or_path, find_owners(environ=environ, folder=folder), environ=environ, folder=folder)


def check_pipelines(*, environ: Mapping[str, str], folder: Path) -> tuple[Check, ...]:
    """Return a check of every pipeline that can be referred to by name in `folder`, the built-in ones first."""
    owners = find_owners(environ=environ, folder=folder)
    folders = sorted(list_pipelines(folder), key=lambda pipeline: (not pipeline.built_in, pipeline.name))
    return tuple(_check(pipeline.name, owners, environ=environ, folder=folder) for pipeline in folders)


def _check(name_or_path: str, owners: Owners, *, environ: Mapping[str, str], folder: Path) -> Check:
    problems = Problems()
    pipeline = read_pipeline(name_or_path, environ=environ, folder=folder, problems=problems)
    if pipeline is None:
        return Check(name_or_path, None, problems.in_reading_order())
    files = Files(pipeline.folder, absolute(folder))
    check_imports(pipeline, files=files, argument=name_or_path, problems=problems)
    for table in pipeline.tables:
        problems.attempt(table.check_extras)
    check_samples(pipeline, files=files, argument=name_or_path, problems=problems)
    errors = (*find_conflicts(pipeline, owners, environ=environ, folder=folder), *problems.in_reading_order())
    return Check(pipeline.name, None if errors else pipeline, errors)
