"""A pipeline as definitions of Dagster: an asset a table, a check an expectation, a schedule, and a sensor on new snapshots."""

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

_DEFINITIONS = Path(__file__).with_name("dagster_definitions.py")  # copied, not imported: only Dagster has what it needs
_WORDS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


@dataclass(frozen=True)
class DagsterSettings:
    """What the pipeline does not say about its definitions.

    `pipeline` is its name as a command takes it, `name` that of the job. `land_first` lands all there is before anything is
    built.
    """

    name: str
    pipeline: str
    schedule: str = "@hourly"
    retries: int = 2
    land_first: bool = False


def export_definitions(settings: Settings, pipeline: Pipeline, asked: DagsterSettings, *, into: Path) -> tuple[str, ...]:
    """Write the definitions of a pipeline to a folder, and return what there is to say about them.

    Idempotent. A file of that name that was not exported is a SpecError, and stays as it is.
    """
    path = into / f"{asked.name}.py"
    text = definitions_text(pipeline, asked, folder=folder_from(into, settings))
    write(text, path, by="headrace export dagster", other_name="--name")
    checks = count_of(sum(len(each.expectations) for each in pipeline.tables), "check")
    return (f"{path} has {count_of(len(pipeline.tables), 'table')} and {checks}. Next: dagster dev -f {path}",)


def definitions_text(pipeline: Pipeline, asked: DagsterSettings, *, folder: str) -> str:
    """Return the file, the same for the same pipeline. `folder` is where its commands run, seen from the file.

    A pipeline without tables, and what Dagster would refuse, is an error.
    """
    check_tables(pipeline, what="assets")
    check_name(asked.name, option="--name")
    check_schedule(asked.schedule)
    if asked.schedule.startswith("@") and asked.schedule not in _WORDS:
        raise SettingsError(
            f'Dagster has no schedule "{asked.schedule}"',
            where="--schedule",
            next_step=f"Write one of {', '.join(_WORDS)}, or cron's five fields.",
        )
    block = [
        f"PIPELINE = {literal(asked.pipeline)}",
        f"NAME = {literal(asked.name)}",
        f"ABOUT = {literal(pipeline.about)}",
        f"SCHEDULE = {literal(asked.schedule)}",
        f"RETRIES = {asked.retries}",
        f"LANDS_FIRST = {asked.land_first}",
        f"FOLDER_FROM_HERE = {literal(folder)}",
        "SOURCES: tuple[Source, ...] = (",
        *(f"    Source({literals(name.parts)}, {literal(about)})," for name, about in _sources(pipeline)),
        ")",
        "TABLES: tuple[Table, ...] = (",
        *(line for each in pipeline.tables for line in _entry(each)),
        ")",
    ]
    return fill(_DEFINITIONS, block)


def _sources(pipeline: Pipeline) -> list[tuple[TableName, str]]:
    return [(stream.table, f"What landed of topic {stream.topic}.") for stream in pipeline.streams]


def _entry(table: LayerTable) -> list[str]:
    reads = " ".join(f"{literals(name.parts)}," for name in dict.fromkeys(table.inputs))
    return [
        "    Table(",
        f"        key={literals(table.table.parts)},",
        f"        layer={literal(table.layer)},",
        f"        reads=({reads}),",
        f"        about={literal(table.about)},",
        f"        partition_by={literals([str(each) for each in table.partition_by])},",
        "        checks=(",
        *(f"            {line}" for line in _checks(table)),
        "        ),",
        "    ),",
    ]


def _checks(table: LayerTable) -> Iterator[str]:
    """Yield a check for each expectation; its name is its sentence in one word, numbered where two become the same."""
    taken: set[str] = set()
    for each in table.expectations:
        name = plain = re.sub(r"[^a-z0-9]+", "_", each.sentence.lower()).strip("_") or "expectation"
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        yield f"Check({literal(name)}, {literal(each.sentence)}, {literal(each.otherwise)}),"
