"""Load a pipeline: from a name or path to a frozen value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.capture import peek_stage, read_capture
from headrace.spec.loading.document import Section, Value, read_document
from headrace.spec.loading.durations import read_seconds
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import FILE, absolute, find_pipeline
from headrace.spec.loading.http import KEY as SOURCES
from headrace.spec.loading.http import check_generator_receivers, read_http
from headrace.spec.loading.keys import PIPELINE_KEYS
from headrace.spec.loading.macros import read_macros
from headrace.spec.loading.names import METADATA, namespace_of, read_identifier, read_namespace, read_table_name
from headrace.spec.loading.own_queries import check_demo_query, read_queries
from headrace.spec.loading.people import read_people
from headrace.spec.loading.serving import read_serving
from headrace.spec.loading.stage_file import STAGE, StageFile, read_stage_tables
from headrace.spec.loading.streams import read_stream
from headrace.spec.loading.table_files import name_tables, read_tables
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.problems import Problems
from headrace.spec.sql.graph import order_tables

OUTPUT_KEYS = ("table", "output", "commit_log")
"""The keys of a stream that name its outputs."""
UNKNOWN_TABLE = ("is not a table of this pipeline", "is not a layer table of this pipeline", "is not a stream of this pipeline")
"""The texts of errors about unknown names."""


@dataclass
class Broken:
    """Streams and tables with errors of their own: references to them are not errors.

    With `unknown`, there may be further tables whose names can't be read because of an error.
    """

    unknown: bool = False
    streams: set[str] = field(default_factory=set)
    tables: set[TableName] = field(default_factory=set)

    @property
    def causes(self) -> frozenset[str]:
        """The texts that mark an error as a consequence of these errors."""
        return frozenset((*(f'"{name}"' for name in self.streams), *map(str, self.tables), *self.unknown_names))

    @property
    def unknown_names(self) -> tuple[str, ...]:
        """The texts of errors about names that may be among the unknown tables."""
        return UNKNOWN_TABLE if self.unknown else ()

    def add_stream(self, value: Value) -> None:
        self.streams.add(value.key)
        try:
            self.tables.add(read_table_name(value.at("table")))
        except (KeyError, SpecError):
            self.unknown = True


def load_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> Pipeline:
    """Return the pipeline that a name or path refers to in `folder`. Raise the first error in its files as a SpecError."""
    problems = Problems()
    pipeline = read_pipeline(name_or_path, environ=environ, folder=folder, problems=problems)
    errors = problems.in_reading_order()
    if errors or pipeline is None:
        raise _with_count(errors)
    return pipeline


def read_pipeline(name_or_path: str, *, environ: Mapping[str, str], folder: Path, problems: Problems) -> Pipeline | None:
    """Return the pipeline, or None if it has errors, all of which are collected in `problems`."""
    path = problems.attempt(find_pipeline, name_or_path, folder=folder)
    if path is None:
        return None
    files = Files(path, absolute(folder))
    place = files.place(path / FILE, argument=name_or_path)
    document = problems.attempt(read_document, path / FILE, place=place, environ=environ)
    section = document and problems.attempt(document.section, PIPELINE_KEYS, problems=problems)
    if not section:
        return None
    name = problems.attempt(_read_name, section, path)
    about = problems.attempt(lambda: section.need("about", example="what it does, in one sentence").text())
    trigger = problems.attempt(_read_trigger, section)
    target_lag = problems.attempt(_read_target_lag, section)
    written = section.find("namespace")
    namespace = None if written is None else problems.attempt(read_namespace, written)
    broken = Broken(unknown=written is not None and namespace is None)
    streams = problems.attempt(_read_streams, section, files=files, problems=problems, broken=broken) or ()
    broken.unknown |= not streams and not broken.streams
    macros = read_macros(files, argument=name_or_path, problems=problems)
    with problems.without_follow_ons(broken.causes):
        sources = _read_sources(section, problems=problems)
        http = read_http(sources.get("http"), files=files, streams=streams, problems=problems)
        capture = read_capture(sources.get("postgres"), files=files, problems=problems)
        check_generator_receivers(section, streams=streams, http=http, problems=problems)
        staged: tuple[LayerTable, ...] = ()
        before = len(problems.errors)
        stage = capture.stage if capture else peek_stage(sources.get("postgres"), files=files)
        if stage:
            place = files.place(stage, argument=name_or_path)
            stage_file = StageFile(stage, place, namespace_of(STAGE, written=namespace), streams, macros)
            staged = read_stage_tables(stage_file, environ=environ, problems=problems)
        broken.unknown |= len(problems.errors) > before or (stage is None and capture is None and "postgres" in sources)
    others = [*(stream.table for stream in streams), *(table.table for table in staged), *broken.tables]
    with problems.without_follow_ons(broken.unknown_names):
        built = read_tables(
            files,
            namespace=namespace,
            others=others,
            macros=macros,
            argument=name_or_path,
            environ=environ,
            problems=problems,
        )
    tables = (*staged, *built)
    broken.tables |= set(name_tables(files, namespace=namespace)) - {table.table for table in built}
    with problems.without_follow_ons(broken.unknown_names):
        ordered = order_tables(tables, streams=streams, broken=broken.tables, problems=problems)
        names = [*(stream.table for stream in streams), *(table.table for table in tables), *broken.tables]
        queries = read_queries(section, tables=names, problems=problems)
        check_demo_query(sources.get("postgres"), tables=names, problems=problems)
    with problems.without_follow_ons(broken.causes):
        serving = read_serving(section, files=files, tables=tables, problems=problems)
        people = read_people(section, streams=streams, tables=tables, problems=problems)
    if problems.errors or name is None or about is None or trigger is None:
        return None
    return Pipeline(
        name,
        about.strip(),
        path,
        streams=streams,
        trigger_seconds=trigger,
        tables=tuple(_with_default_lag(table, target_lag) for table in ordered),
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
        raise value.error(f'the name "{METADATA}" is reserved for Headrace\'s own tables', fix="Choose another name")
    if name != path.name:
        raise value.error(f'the name "{name}" differs from the folder "{path.name}"', fix="Give both the same name")
    return name


def _read_trigger(section: Section) -> float:
    value = section.find("trigger")
    return 0.0 if value is None else read_seconds(value, example="10s")


def _read_target_lag(section: Section) -> float | None:
    value = section.find("target_lag")
    return None if value is None else read_seconds(value, example="1 minute")


def _with_default_lag(table: LayerTable, default: float | None) -> LayerTable:
    return replace(table, target_lag=default) if table.target_lag is None else table


def _read_sources(section: Section, *, problems: Problems) -> Mapping[str, Value]:
    value = section.find(SOURCES)
    sources = value and problems.attempt(value.section, ("http", "postgres"), problems=problems)
    return sources.values if sources else {}


def _read_streams(section: Section, *, files: Files, problems: Problems, broken: Broken) -> tuple[Stream, ...]:
    value = section.need("streams", example="{events: {topic: …, format: …, schema: …, table: …}}")
    values = value.section(None, problems=problems).values
    if not values:
        raise value.error("the pipeline has no streams", fix="Add a stream with a topic, format, schema and table")
    streams: list[Stream] = []
    for entry in values.values():
        stream = read_stream(entry, files=files, problems=problems)
        if stream:
            problems.errors += _find_shared_outputs(stream, entry, streams)
            streams.append(stream)
        else:
            broken.add_stream(entry)
    return tuple(streams)


def outputs_of(stream: Stream) -> dict[str, str]:
    """Return the outputs of a stream by their keys. Two streams can't share an output."""
    places = dict(zip(OUTPUT_KEYS, (str(stream.table), stream.output, stream.commit_log), strict=True))
    return {key: place.rstrip("/") for key, place in places.items() if place}


def _find_shared_outputs(stream: Stream, value: Value, others: Sequence[Stream]) -> Iterator[SpecError]:
    """Yield an error for each key whose value an earlier stream has already."""
    places = {"topic": stream.topic, **outputs_of(stream)}
    for key, owned in places.items():
        other = next((earlier for earlier in others if {"topic": earlier.topic, **outputs_of(earlier)}.get(key) == owned), None)
        if other:
            yield value.at(key).error(
                f'streams "{other.name}" and "{stream.name}" have the same {key}, {owned}',
                fix=f"Give each stream its own {key}",
            )


def _with_count(errors: Sequence[SpecError]) -> SpecError:
    """Return the first error, with the number of further errors."""
    first, more = errors[0], len(errors) - 1
    if not more:
        return first
    others = "1 more error" if more == 1 else f"{more} more errors"
    return SpecError(first.what, where=first.where, next_step=f"{first.next_step}\n{others} in this pipeline.")
