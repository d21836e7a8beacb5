"""Everything that is wrong with pipelines, found without a JVM and without stopping at the first mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import absolute, list_pipelines
from headrace.spec.loading.imports import check_imports
from headrace.spec.loading.loader import read_pipeline
from headrace.spec.loading.owners import Owners, find_owners, find_taken
from headrace.spec.loading.samples import check_samples
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Problems


@dataclass(frozen=True)
class Check:
    """What a check found: the pipeline where it is right, else its errors in the order in which one reads its files."""

    name: str
    pipeline: Pipeline | None
    errors: tuple[SpecError, ...]


def check_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> Check:
    """Return the pipeline that a name or path means in `folder`, or all that is wrong with it.

    Pipelines may read the same topic; a table, or a place for files, that another one owns is an error.
    """
    return _check(name_or_path, find_owners(environ=environ, folder=folder), environ=environ, folder=folder)


def check_pipelines(*, environ: Mapping[str, str], folder: Path) -> tuple[Check, ...]:
    """Return a check of every pipeline that has a name in `folder`, the built-in ones first."""
    owners = find_owners(environ=environ, folder=folder)
    found = sorted(list_pipelines(folder), key=lambda each: (not each.built_in, each.name))
    return tuple(_check(each.name, owners, environ=environ, folder=folder) for each in found)


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
    errors = (*find_taken(pipeline, owners, environ=environ, folder=folder), *problems.in_reading_order())
    return Check(pipeline.name, None if errors else pipeline, errors)
