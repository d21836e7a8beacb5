"""Who writes what: a table, or a place for files, has one pipeline that owns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.document import Section, Value, read_document
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import FILE, absolute, list_pipelines
from headrace.spec.loading.loader import KEYS_OF_PLACES, written_by
from headrace.spec.loading.names import namespace_of
from headrace.spec.loading.stage_file import STAGE, staged_names
from headrace.spec.loading.table_files import list_table_files
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Problems

Owners = Mapping[tuple[str, str], tuple[str, Path]]
"""The name and folder of the pipeline that owns a table or a place, by the key that names it in pipeline.yml."""


def find_owners(*, environ: Mapping[str, str], folder: Path) -> Owners:
    """Return the owner of everything that the pipelines write which have a name in `folder`.

    Of two, the one that comes with Headrace owns it, else the first by name. No query is read: names are in pipeline.yml, or
    are those of files.
    """
    owners: dict[tuple[str, str], tuple[str, Path]] = {}
    for each in sorted(list_pipelines(folder), key=lambda each: (not each.built_in, each.name)):
        for written in _list_written(each.path, environ=environ, folder=folder):
            owners.setdefault(written, (each.name, each.path))
    return owners


def find_taken(pipeline: Pipeline, owners: Owners, *, environ: Mapping[str, str], folder: Path) -> tuple[SpecError, ...]:
    """Return an error for everything that the pipeline writes and another one owns."""
    place = Files(pipeline.folder, absolute(folder)).place(pipeline.folder / FILE, argument=pipeline.name)
    document = read_document(pipeline.folder / FILE, place=place, environ=environ)
    errors = []
    for stream in pipeline.streams:
        for key, written in written_by(stream).items():
            owner, home = owners.get((key, written), (pipeline.name, pipeline.folder))
            if home != pipeline.folder:
                value = document.at("streams", stream.name, key)
                what = f'pipeline "{owner}" already has the {key} {written}'
                errors.append(value.error(what, fix=f"Give each pipeline its own {key}"))
    for table in pipeline.tables:
        owner, home = owners.get(("table", str(table.table)), (pipeline.name, pipeline.folder))
        if home != pipeline.folder:
            what = f'pipeline "{owner}" already has the table {table.table}'
            errors.append(table.error(what, at="", fix="Give each pipeline a namespace of its own"))
    return tuple(errors)


def _list_written(path: Path, *, environ: Mapping[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of what a pipeline writes, as far as its files can be read."""
    problems = Problems()
    place = Files(path, absolute(folder)).place(path / FILE, argument=path.name)
    document = problems.attempt(read_document, path / FILE, place=place, environ=environ)
    section = document and problems.attempt(document.section, None, problems=problems)
    if not section:
        return
    streams = section.find("streams")
    inner = streams and problems.attempt(streams.section, None, problems=problems)
    for each in inner.values.values() if inner else ():
        stream = problems.attempt(each.section, None, problems=problems)
        for key in KEYS_OF_PLACES if stream else ():
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
        found = path / document.at("sources", "postgres", "stage").text()
    except (KeyError, SpecError):
        return None
    return found if found.is_file() else None


def _read_text(section: Section | None, key: str, *, problems: Problems) -> str | None:
    value = section.find(key) if section else None
    return problems.attempt(value.text) if value else None
