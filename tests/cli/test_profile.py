"""`--profile`, `--log-level` and `--log-format` may stand before a command or after it."""

from __future__ import annotations

import pytest

from headrace.cli.app import _with_global_options_first


@pytest.mark.parametrize(
    ("typed", "normalized"),
    [
        ("up --profile stack", "--profile stack up"),
        ("up kafka --profile=stack", "--profile=stack up kafka"),
        ("--profile stack up", "--profile stack up"),
        ("query -- --profile", "query -- --profile"),
        ("run weather --log-format json --profile stack -v", "--log-format json --profile stack run weather -v"),
        ("run weather --log-level=debug", "--log-level=debug run weather"),
        ("run --log-level", "--log-level run"),
        ("run --log-level -- x", "--log-level run -- x"),
        ("up", "up"),
    ],
)
def test_global_option_works_at_any_position(typed: str, normalized: str) -> None:
    assert _with_global_options_first(typed.split()) == normalized.split()
