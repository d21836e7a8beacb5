"""Everything that is wrong with pipelines, found without a JVM and without stopping at the first mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.document import read_document
from headrace.spec.files import Files
from headrace.spec.folders import FILE, absolute, list_pipelines
from headrace.spec.loader import read_pipeline, written_by
from headrace.spec.pipeline import Pipeline
from headrace.spec.problems import Problems


@dataclass(frozen=True)
class Check:
    """What a check found: the pipeline where it is right, else its errors in the order in which one reads its files."""

    name: str
    pipeline: Pipeline | None
    errors: tuple[SpecError, ...]


def check_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> Check:
    """Gives back the pipeline that a name or path means in `folder`, or all that is wrong with it."""
    problems = Problems()
    pipeline = read_pipeline(name_or_path, environ=environ, folder=folder, problems=problems)
    return Check(pipeline.name if pipeline else name_or_path, pipeline, problems.in_reading_order())


def check_pipelines(*, environ: Mapping[str, str], folder: Path) -> tuple[Check, ...]:
    """Gives back a check of every pipeline that has a name in `folder`, the built-in ones first.

    Pipelines may read the same topic; a table, or a place for files, that two of them write is an error of the second.
    """
    writers: dict[tuple[str, str], str] = {}
    checks: list[Check] = []
    for each in sorted(list_pipelines(folder), key=lambda each: (not each.built_in, each.name)):
        check = check_pipeline(each.name, environ=environ, folder=folder)
        errors = _claim(check.pipeline, writers, environ=environ, folder=folder) if check.pipeline else ()
        checks.append(Check(check.name, None, errors) if errors else check)
    return tuple(checks)


def _claim(
    pipeline: Pipeline, writers: dict[tuple[str, str], str], *, environ: Mapping[str, str], folder: Path
) -> tuple[SpecError, ...]:
    """Notes what the pipeline writes, and gives back an error for each thing that another one writes already."""
    place = Files(pipeline.folder, absolute(folder)).place(pipeline.folder / FILE, argument=pipeline.name)
    document = read_document(pipeline.folder / FILE, place=place, environ=environ)
    errors = []
    for stream in pipeline.streams:
        for key, written in written_by(stream).items():
            other = writers.setdefault((key, written), pipeline.name)
            if other != pipeline.name:
                value = document.at("streams", stream.name, key)
                what = f'pipeline "{other}" already has the {key} {written}'
                errors.append(value.error(what, fix=f"Give each pipeline its own {key}"))
    for table in pipeline.tables:
        other = writers.setdefault(("table", str(table.table)), pipeline.name)
        if other != pipeline.name:
            what = f'pipeline "{other}" already has the table {table.table}'
            errors.append(table.error(what, at="", fix="Give each pipeline a namespace of its own"))
    return tuple(errors)
