"""`--profile` may stand before a command or after it."""

from __future__ import annotations

import pytest

from headrace.cli.app import _with_profile_first


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("up --profile stack", "--profile stack up"),
        ("up kafka --profile=stack", "--profile=stack up kafka"),
        ("--profile stack up", "--profile stack up"),
        ("query -- --profile", "query -- --profile"),
        ("up", "up"),
    ],
)
def test_the_profile_holds_wherever_it_stands(typed: str, meant: str) -> None:
    assert _with_profile_first(typed.split()) == meant.split()
