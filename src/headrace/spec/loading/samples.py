"""A pipeline's sample and the rows that it must become, as far as that can be told without landing it."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.spec.loading.document import read_text
from headrace.spec.loading.files import Files
from headrace.spec.model.pipeline import Pipeline, Stream
from headrace.spec.problems import Place, Problems

SAMPLE, EXPECTED = "sample", "expected"


def check_samples(pipeline: Pipeline, *, files: Files, argument: str, problems: Problems) -> None:
    """Keep as problems the first line of each file of the sample and of its expected rows that is not JSON.

    A message of a JSON stream may be none, to show what becomes of it, where the expected rows leave it out.
    """
    for stream in pipeline.streams:
        path = pipeline.folder / SAMPLE / f"{stream.name}.jsonl"
        if path.is_file():
            problems.attempt(_check_sample, stream, path, place=files.place(path, argument=argument))
    for path in sorted((pipeline.folder / EXPECTED).rglob("*.jsonl")):
        place = files.place(path, argument=argument)
        problems.attempt(_check_lines, path, place=place, fix="Fix the line")


def _check_sample(stream: Stream, path: Path, *, place: Place) -> None:
    expected = path.parent.parent / EXPECTED / path.name
    meant = 0
    if stream.format == "json" and expected.is_file():
        lines = read_text(path, place=place).splitlines()
        meant = max(0, len(lines) - len(read_text(expected, place=place).splitlines()))
    left_out = f", or leave its row out of {EXPECTED}/{path.name}" if stream.format == "json" else ""
    _check_lines(path, place=place, fix=f"Fix the line{left_out}", meant=meant)


def _check_lines(path: Path, *, place: Place, fix: str, meant: int = 0) -> None:
    """Refuse the first line that is not JSON, unless no more than `meant` are."""
    wrong: list[tuple[int, ValueError]] = []
    for number, line in enumerate(read_text(path, place=place).splitlines(), start=1):
        try:
            json.loads(line)
        except ValueError as error:
            wrong.append((number, error))
    if len(wrong) > meant:
        number, first = wrong[0]
        said = f"{first.msg}, in column {first.colno}" if isinstance(first, json.JSONDecodeError) else str(first)
        raise place.error(f"the line is not JSON: {said}", line=number, fix=fix)
