"""Ownership of outputs: one pipeline owns each table and each location for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.document import Section, Value, read_document
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import FILE, absolute, list_pipelines
from headrace.spec.loading.loader import OUTPUT_KEYS, outputs_of
from headrace.spec.loading.names import namespace_of
from headrace.spec.loading.stage_file import STAGE, staged_names
from headrace.spec.loading.table_files import list_table_files
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Problems

Owners = Mapping[tuple[str, str], tuple[str, Path]]
"""The name and folder of the pipeline that owns an output, by its key in pipeline.yml and its value."""


def find_owners(*, environ: Mapping[str, str], folder: Path) -> Owners:
    """Return the owner of every output of the pipelines that can be referred to by name in `folder`.

    If several pipelines claim an output, a built-in pipeline owns it, else the first by name. No query is parsed: names come
    from pipeline.yml and from file names.
    """
    owners: dict[tuple[str, str], tuple[str, Path]] = {}
    for pipeline in sorted(list_pipelines(folder), key=lambda pipeline: (not pipeline.built_in, pipeline.name)):
        for written in _list_outputs(pipeline.path, environ=environ, folder=folder):
            owners.setdefault(written, (pipeline.name, pipeline.path))
    return owners


def find_conflicts(pipeline: Pipeline, owners: Owners, *, environ: Mapping[str, str], folder: Path) -> tuple[SpecError, ...]:
    """Return an error for each output of the pipeline that another pipeline owns."""
    place = Files(pipeline.folder, absolute(folder)).place(pipeline.folder / FILE, argument=pipeline.name)
    document = read_document(pipeline.folder / FILE, place=place, environ=environ)
    errors = []
    for stream in pipeline.streams:
        for key, written in outputs_of(stream).items():
            owner, home = owners.get((key, written), (pipeline.name, pipeline.folder))
            if home != pipeline.folder:
                value = document.at("streams", stream.name, key)
                what = f'pipeline "{owner}" already owns {key} {written}'
                errors.append(value.error(what, fix=f"Set a different {key}"))
    for table in pipeline.tables:
        owner, home = owners.get(("table", str(table.table)), (pipeline.name, pipeline.folder))
        if home != pipeline.folder:
            what = f'pipeline "{owner}" already owns table {table.table}'
            errors.append(table.error(what, at="", fix="Set a different namespace in pipeline.yml"))
    return tuple(errors)


def _list_outputs(path: Path, *, environ: Mapping[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the outputs of a pipeline as key and value, as far as its files can be read."""
    problems = Problems()
    place = Files(path, absolute(folder)).place(path / FILE, argument=path.name)
    document = problems.attempt(read_document, path / FILE, place=place, environ=environ)
    section = document and problems.attempt(document.section, None, problems=problems)
    if not section:
        return
    streams = section.find("streams")
    inner = streams and problems.attempt(streams.section, None, problems=problems)
    for entry in inner.values.values() if inner else ():
        stream = problems.attempt(entry.section, None, problems=problems)
        for key in OUTPUT_KEYS if stream else ():
            written = _read_text(stream, key, problems=problems)
            if written:
                yield key, written.rstrip("/")
    namespace = _read_text(section, "namespace", problems=problems)
    stage = _stage_file(document, path) if document else None
    for name in staged_names(stage, place=place, environ=environ) if stage else ():
        yield "table", f"{namespace_of(STAGE, written=namespace)}.{name}"
    for file in list_table_files(path):
        yield "table", f"{namespace_of(file.parent.name, written=namespace)}.{file.stem}"


def _stage_file(document: Value, path: Path) -> Path | None:
    try:
        file = path / document.at("sources", "postgres", "stage").text()
    except (KeyError, SpecError):
        return None
    return file if file.is_file() else None


def _read_text(section: Section | None, key: str, *, problems: Problems) -> str | None:
    value = section.find(key) if section else None
    return problems.attempt(value.text) if value else None
