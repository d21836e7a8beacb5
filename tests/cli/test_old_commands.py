"""Commands and options of 0.1 work under their old names, which no help shows."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Here


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["forget", "lineage"], ["erase", "lineage"]),
        (["forget", "lineage", "--email", "a@example.com"], ["erase", "lineage", "--email", "a@example.com"]),
        (["seeder", "lineage"], ["seed", "serve", "lineage"]),
        (["build", "payments", "--alone"], ["build", "payments", "--no-deps"]),
    ],
)
def test_old_name_does_what_the_new_one_does(here: Here, old: list[str], new: list[str]) -> None:
    code, output = here(*new)
    assert code in (1, 2)
    old_code, old_output = here(*old)
    assert (old_code, old_output.splitlines()[-1]) == (code, output.splitlines()[-1])


def test_help_shows_no_old_name(here: Here) -> None:
    output = here("--help")[1] + here("build", "--help")[1]
    assert "\n  erase " in output
    assert "\n  seed " in output
    assert "--no-deps" in output
    assert not any(old in output for old in ("forget", "seeder", "--alone"))
