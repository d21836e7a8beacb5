"""Check a pipeline's sample and its expected rows without landing the sample."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.spec.loading.document import read_text
from headrace.spec.loading.files import Files
from headrace.spec.model.pipeline import Pipeline, Stream
from headrace.spec.problems import Place, Problems

SAMPLE, EXPECTED = "sample", "expected"


def check_samples(pipeline: Pipeline, *, files: Files, argument: str, problems: Problems) -> None:
    """Collect an error for the first line of each sample file and each file of expected rows that is not valid JSON.

    A sample of a JSON stream may contain invalid messages, which are quarantined: as many as it has more lines than the
    expected rows.
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
    allowed = 0
    if stream.format == "json" and expected.is_file():
        lines = read_text(path, place=place).splitlines()
        allowed = max(0, len(lines) - len(read_text(expected, place=place).splitlines()))
    left_out = f", or remove its row from {EXPECTED}/{path.name}" if stream.format == "json" else ""
    _check_lines(path, place=place, fix=f"Fix the line{left_out}", allowed=allowed)


def _check_lines(path: Path, *, place: Place, fix: str, allowed: int = 0) -> None:
    """Raise a SpecError for the first line that is not valid JSON if more than `allowed` lines are not."""
    wrong: list[tuple[int, ValueError]] = []
    for number, line in enumerate(read_text(path, place=place).splitlines(), start=1):
        try:
            json.loads(line)
        except ValueError as error:
            wrong.append((number, error))
    if len(wrong) > allowed:
        number, first = wrong[0]
        reason = f"{first.msg}, in column {first.colno}" if isinstance(first, json.JSONDecodeError) else str(first)
        raise place.error(f"not valid JSON: {reason}", line=number, fix=fix)
