"""Export a pipeline as Dagster definitions: one asset per table, one check per expectation, a schedule and a sensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SettingsError
from headrace.export.written import check_name, check_schedule, check_tables, fill, folder_from, literal, literals, write
from headrace.plurals import count_of
from headrace.settings import Settings
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName

_DEFINITIONS = Path(__file__).with_name("dagster_definitions.py")  # copied, not imported: it needs Dagster
_WORDS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


@dataclass(frozen=True)
class DagsterSettings:
    """The settings of Dagster definitions that the pipeline does not define.

    `pipeline` is the pipeline's name or path, `name` the name of the job. With `land_first`, the job lands all available
    messages before it builds.
    """

    name: str
    pipeline: str
    schedule: str = "@hourly"
    retries: int = 2
    land_first: bool = False


def export_definitions(settings: Settings, pipeline: Pipeline, dagster: DagsterSettings, *, into: Path) -> tuple[str, ...]:
    """Write the definitions of a pipeline to a folder, and return the messages to print.

    Idempotent. An existing file that no export wrote raises a SpecError and is not changed.
    """
    path = into / f"{dagster.name}.py"
    text = definitions_text(pipeline, dagster, folder=folder_from(into, settings))
    write(text, path, by="headrace export dagster", other_name="--name")
    checks = count_of(sum(len(table.expectations) for table in pipeline.tables), "check")
    return (f"{path} has {count_of(len(pipeline.tables), 'table')} and {checks}. Next: dagster dev -f {path}",)


def definitions_text(pipeline: Pipeline, dagster: DagsterSettings, *, folder: str) -> str:
    """Return the text of the file. `folder` is the working folder of its commands, relative to the file.

    A pipeline without tables raises a SpecError, and settings that Dagster rejects raise a SettingsError.
    """
    check_tables(pipeline, what="assets")
    check_name(dagster.name, option="--name")
    check_schedule(dagster.schedule)
    if dagster.schedule.startswith("@") and dagster.schedule not in _WORDS:
        raise SettingsError(
            f'unknown schedule "{dagster.schedule}"',
            where="--schedule",
            next_step=f"Write one of {', '.join(_WORDS)}, or a cron expression with five fields.",
        )
    block = [
        f"PIPELINE = {literal(dagster.pipeline)}",
        f"NAME = {literal(dagster.name)}",
        f"ABOUT = {literal(pipeline.about)}",
        f"SCHEDULE = {literal(dagster.schedule)}",
        f"RETRIES = {dagster.retries}",
        f"LANDS_FIRST = {dagster.land_first}",
        f"FOLDER_FROM_HERE = {literal(folder)}",
        "SOURCES: tuple[Source, ...] = (",
        *(f"    Source({literals(name.parts)}, {literal(about)})," for name, about in _sources(pipeline)),
        ")",
        "TABLES: tuple[Table, ...] = (",
        *(line for table in pipeline.tables for line in _entry(table)),
        ")",
    ]
    return fill(_DEFINITIONS, block)


def _sources(pipeline: Pipeline) -> list[tuple[TableName, str]]:
    return [(stream.table, f"The landed messages of topic {stream.topic}.") for stream in pipeline.streams]


def _entry(table: LayerTable) -> list[str]:
    reads = " ".join(f"{literals(name.parts)}," for name in dict.fromkeys(table.inputs))
    return [
        "    Table(",
        f"        key={literals(table.table.parts)},",
        f"        layer={literal(table.layer)},",
        f"        reads=({reads}),",
        f"        about={literal(table.about)},",
        f"        partition_by={literals([str(transform) for transform in table.partition_by])},",
        "        checks=(",
        *(f"            {line}" for line in _checks(table)),
        "        ),",
        "    ),",
    ]


def _checks(table: LayerTable) -> Iterator[str]:
    """Yield a check for each expectation. Its name is its sentence as an identifier, numbered if it is not unique."""
    taken: set[str] = set()
    for expectation in table.expectations:
        name = plain = re.sub(r"[^a-z0-9]+", "_", expectation.sentence.lower()).strip("_") or "expectation"
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        yield f"Check({literal(name)}, {literal(expectation.sentence)}, {literal(expectation.on_failure)}),"
