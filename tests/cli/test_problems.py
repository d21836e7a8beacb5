"""Data-quality problems of generators, by name and rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import run_command


def generate(*arguments: str, folder: Path) -> tuple[int, str]:
    return run_command("generate", *arguments, environ={"HEADRACE_HOME": str(folder / ".headrace")}, folder=folder)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["payments.charges", "--problem", "lat=0.1"],
            'no generator has the problem "lat"\nProblems are: charges: duplicate, ',
        ),
        (["lineage", "--problem", "late=0.1"], "These generators have no problems: remove --problem."),
        (
            ["payments", "--problem", "late"],
            'invalid problem rate "late"\nWrite NAME=RATE with a rate from 0 to 1, such as --problem late=0.05',
        ),
        (["payments", "--problem", "late=2"], 'invalid problem rate "late=2"'),
        ([], "name a pipeline"),
    ],
)
def test_generate_unknown_problem(arguments: list[str], says: str, tmp_path: Path) -> None:
    code, output = generate(*arguments, folder=tmp_path)
    assert code == 2
    assert says in output


def test_generate_stop_without_generators(tmp_path: Path) -> None:
    assert generate("--stop", folder=tmp_path) == (0, "no background generator was running\n")
