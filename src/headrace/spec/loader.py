"""From a pipeline's name to its frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.capture import read_capture
from headrace.spec.document import Section, Value, read_document
from headrace.spec.durations import read_seconds
from headrace.spec.files import Files
from headrace.spec.folders import FILE, absolute, find_pipeline
from headrace.spec.graph import order_tables
from headrace.spec.http import KEY as SOURCES
from headrace.spec.http import check_ways, read_http
from headrace.spec.layers import LayerTable
from headrace.spec.names import METADATA, namespace_of, read_identifier, read_namespace
from headrace.spec.own_queries import read_queries
from headrace.spec.people import read_people
from headrace.spec.pipeline import Pipeline, Stream
from headrace.spec.problems import Problems
from headrace.spec.serving import read_serving
from headrace.spec.stage_file import STAGE, StageFile, read_stage_tables
from headrace.spec.streams import read_stream
from headrace.spec.table_files import read_tables

KEYS = ("name", "about", "trigger", "namespace", "sources", "streams", "serving", "people", "queries")
KEYS_OF_PLACES = ("table", "output", "commit_log")
"""The keys of a stream that name what it writes."""


def load_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> Pipeline:
    """Gives back the pipeline that a name or path means in `folder`; the first mistake in its files is a SpecError."""
    problems = Problems()
    pipeline = read_pipeline(name_or_path, environ=environ, folder=folder, problems=problems)
    errors = problems.in_reading_order()
    if errors or pipeline is None:
        raise _with_count(errors)
    return pipeline


def read_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path, problems: Problems) -> Pipeline | None:
    """Gives back the pipeline, or None where it has problems, all of which are kept."""
    path = problems.attempt(find_pipeline, name_or_path, folder=folder)
    if path is None:
        return None
    files = Files(path, absolute(folder))
    place = files.place(path / FILE, argument=name_or_path)
    document = problems.attempt(read_document, path / FILE, place=place, environ=environ)
    section = document and problems.attempt(document.section, KEYS, problems=problems)
    if not section:
        return None
    name = problems.attempt(_read_name, section, path)
    about = problems.attempt(lambda: section.need("about", example="what it does, in one sentence").text())
    trigger = problems.attempt(_read_trigger, section)
    namespace = problems.attempt(_read_namespace, section)
    streams = problems.attempt(_read_streams, section, files=files, problems=problems)
    if problems.errors or name is None or about is None or trigger is None or streams is None:
        return None
    sources = _read_sources(section, problems=problems)
    http = read_http(sources.get("http"), files=files, streams=streams, problems=problems)
    capture = read_capture(sources.get("postgres"), files=files, problems=problems)
    check_ways(section, streams=streams, http=http, problems=problems)
    staged: tuple[LayerTable, ...] = ()
    if capture and capture.stage:
        place = files.place(capture.stage, argument=name_or_path)
        stage_file = StageFile(capture.stage, place, namespace_of(STAGE, written=namespace), streams)
        staged = read_stage_tables(stage_file, environ=environ, problems=problems)
    others = [*(stream.table for stream in streams), *(table.table for table in staged)]
    built = read_tables(files, namespace=namespace, others=others, argument=name_or_path, environ=environ, problems=problems)
    tables = (*staged, *built)
    if problems.errors:  # who names a table that could not be read would be told that there is none
        return None
    ordered = order_tables(tables, streams=streams, problems=problems)
    names = [*(stream.table for stream in streams), *(table.table for table in tables)]
    queries = read_queries(section, tables=names, problems=problems)
    if problems.errors:
        return None
    serving = read_serving(section, files=files, tables=tables, problems=problems)
    people = read_people(section, streams=streams, tables=tables, problems=problems)
    if problems.errors:
        return None
    return Pipeline(
        name,
        about.strip(),
        path,
        streams=streams,
        trigger_seconds=trigger,
        tables=ordered,
        queries=queries,
        http=http,
        serving=serving,
        people=people,
        capture=capture,
    )


def _read_name(section: Section, path: Path) -> str:
    value = section.need("name", example=path.name)
    name = read_identifier(value)
    if name == METADATA:
        raise value.error(f'"{METADATA}" is the namespace of Headrace\'s own tables', fix="Choose another name")
    if name != path.name:
        raise value.error(f'the name is "{name}", and the folder is "{path.name}"', fix="Give both the same name")
    return name


def _read_trigger(section: Section) -> float:
    value = section.find("trigger")
    return 0.0 if value is None else read_seconds(value, example="10s")


def _read_namespace(section: Section) -> str | None:
    value = section.find("namespace")
    if value is None:
        return None
    return read_namespace(value)


def _read_sources(section: Section, *, problems: Problems) -> Mapping[str, Value]:
    value = section.find(SOURCES)
    found = value and problems.attempt(value.section, ("http", "postgres"), problems=problems)
    return found.values if found else {}


def _read_streams(section: Section, *, files: Files, problems: Problems) -> tuple[Stream, ...]:
    value = section.need("streams", example="{events: {topic: …, format: …, schema: …, table: …}}")
    values = value.section(None, problems=problems).values
    if not values:
        raise value.error("the pipeline has no streams", fix="Add one, with its topic, format, schema and table")
    streams: list[Stream] = []
    for each in values.values():
        stream = read_stream(each, files=files, problems=problems)
        if stream:
            problems.attempt(_check_owners, stream, each, streams)
            streams.append(stream)
    return tuple(streams)


def written_by(stream: Stream) -> dict[str, str]:
    """Gives back what a stream writes, which no other stream may write, by the key that names it."""
    places = dict(zip(KEYS_OF_PLACES, (str(stream.table), stream.output, stream.commit_log), strict=True))
    return {key: place.rstrip("/") for key, place in places.items() if place}


def _check_owners(stream: Stream, value: Value, others: Sequence[Stream]) -> None:
    mine = {"topic": stream.topic, **written_by(stream)}
    for other in others:
        for key, owned in {"topic": other.topic, **written_by(other)}.items():
            if mine.get(key) == owned:
                raise value.at(key).error(
                    f'streams "{other.name}" and "{stream.name}" have the same {key}, {owned}',
                    fix=f"Give each its own {key}",
                )


def _with_count(errors: Sequence[SpecError]) -> SpecError:
    """Gives back the first error, which says how many more there are."""
    first, more = errors[0], len(errors) - 1
    if not more:
        return first
    others = "1 more error is" if more == 1 else f"{more} more errors are"
    return SpecError(first.what, where=first.where, next_step=f"{first.next_step}\n{others} in this pipeline.")
