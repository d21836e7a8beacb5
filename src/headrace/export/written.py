"""Files that an export writes for an orchestrator: a file of ours as it is, with the pipeline put into its middle."""

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
    """Return the template's text with these lines between its marks, the same for the same lines."""
    text = _IGNORED.sub("", template.read_text(encoding="utf-8"))
    return _BLOCK.sub(lambda found: "\n".join(("# <pipeline>", *block, "# </pipeline>", "")), text)


def literal(text: str) -> str:
    """Return the text as Python has it, whatever is in it: a JSON string is one of Python's too."""
    return json.dumps(text, ensure_ascii=False)


def literals(texts: Sequence[str]) -> str:
    """Return a tuple of texts as Python has it."""
    return f"({' '.join(f'{literal(text)},' for text in texts)})"


def folder_from(into: Path, settings: Settings) -> str:
    """Return the folder that the command was typed in, seen from the folder that a file is written to."""
    return Path(os.path.relpath(settings.folder, into.resolve())).as_posix()


def check_folder(folder: Path) -> None:
    """Raise a SettingsError where a folder can't be made or used, because a file is in its place or above it."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise SettingsError(f"{there} is a file, and no folder", where="--into", next_step="Name a folder: --into FOLDER")


def write(text: str, path: Path, *, by: str, other_name: str) -> None:
    """Write a file that this export may have written before. Idempotent.

    `by` is the command. A file that it has not written is a SpecError, and stays as it is; `other_name` is the option that
    gives the file another name.
    """
    check_folder(path.parent)
    if path.exists() and f"Written by {by}" not in path.read_text(encoding="utf-8").split("\n", 1)[0]:
        raise SpecError(
            f"the file was not written by {by}",
            where=str(path),
            next_step=f"Name another folder or another name: --into FOLDER, {other_name} NAME",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_tables(pipeline: Pipeline, *, what: str) -> None:
    """Raise a SpecError where a pipeline has nothing to build; `what` is what there would be none of."""
    if not pipeline.tables:
        raise SpecError(
            f"there are no layer tables, so there would be no {what}",
            where=f"pipeline {pipeline.name}",
            next_step="Add one, such as staging/orders.sql, and export again.",
        )


def check_name(name: str, *, option: str) -> None:
    if not is_identifier(name):
        raise SettingsError(f'"{name}" can\'t be a name', where=option, next_step=f"Use {IDENTIFIER_RULE}.")


def check_schedule(schedule: str) -> None:
    if not _SCHEDULE.fullmatch(schedule):
        raise SettingsError(
            f'"{schedule}" is no schedule', where="--schedule", next_step="Write @hourly, @daily, or cron's five fields."
        )
