"""Write the files of an export: a template file with the pipeline's values filled in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import SettingsError, SpecError
from headrace.settings import Settings
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier
from headrace.spec.model.pipeline import Pipeline

_BLOCK = re.compile(r"# <pipeline>\n.*# </pipeline>\n", re.DOTALL)
_IGNORED = re.compile(r"  # type: ignore\[[a-z-]+\]")
_SCHEDULE = re.compile(r"@[a-z]+|[0-9A-Za-z*/,?#-]+( [0-9A-Za-z*/,?#-]+){4}")


def fill(template: Path, block: Sequence[str]) -> str:
    """Return the template's text with these lines between its markers."""
    text = _IGNORED.sub("", template.read_text(encoding="utf-8"))
    return _BLOCK.sub(lambda _: "\n".join(("# <pipeline>", *block, "# </pipeline>", "")), text)


def literal(text: str) -> str:
    """Return the text as a Python literal: a JSON string is a valid one."""
    return json.dumps(text, ensure_ascii=False)


def literals(texts: Sequence[str]) -> str:
    """Return a tuple of texts as a Python literal."""
    return f"({' '.join(f'{literal(text)},' for text in texts)})"


def folder_from(into: Path, settings: Settings) -> str:
    """Return the command's working folder, relative to the folder that a file is written to."""
    return Path(os.path.relpath(settings.folder, into.resolve())).as_posix()


def check_folder(folder: Path) -> None:
    """Raise a SettingsError if the path of a folder or one of its parents is a file."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise SettingsError(f"{existing} is a file, not a folder", where="--into", next_step="Pass a folder: --into FOLDER")


def write(text: str, path: Path, *, by: str, other_name: str) -> None:
    """Write a file, or overwrite one that an earlier export wrote. Idempotent.

    `by` is the command. A file that it did not write raises a SpecError and is not changed. `other_name` is the option that
    sets another file name.
    """
    check_folder(path.parent)
    if path.exists() and f"Written by {by}" not in path.read_text(encoding="utf-8").split("\n", 1)[0]:
        raise SpecError(
            f"the file already exists and was not written by {by}",
            where=str(path),
            next_step=f"Choose another folder or another name: --into FOLDER, {other_name} NAME",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_tables(pipeline: Pipeline, *, what: str) -> None:
    """Raise a SpecError if a pipeline has no layer tables. `what` names what an export makes of them."""
    if not pipeline.tables:
        raise SpecError(
            f"the pipeline has no layer tables to export as {what}",
            where=f"pipeline {pipeline.name}",
            next_step="Add a table, such as staging/orders.sql, and export again.",
        )


def check_name(name: str, *, option: str) -> None:
    if not is_identifier(name):
        raise SettingsError(f'"{name}" is not a valid name', where=option, next_step=f"Use {IDENTIFIER_RULE}.")


def check_schedule(schedule: str) -> None:
    if not _SCHEDULE.fullmatch(schedule):
        raise SettingsError(
            f'"{schedule}" is not a valid schedule',
            where="--schedule",
            next_step="Write @hourly, @daily, or a cron expression with five fields.",
        )
