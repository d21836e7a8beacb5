"""The tree of errors in the documentation of `headrace.errors` is the tree that is raised."""

from __future__ import annotations

import re

import pytest

from headrace import errors
from headrace.errors import HeadraceError, RetryableError

_LINE = re.compile(r"^(?P<branches>[│ ]*[├└]── )?(?P<name>[A-Z]\w+Error)\b(?:  +(?P<about>\S.*))?$")
_RETRYABLE = {"RetryableError", "UnavailableError", "BusyError", "CompactedError", "OutdatedError"}


def documented() -> list[tuple[str, str, bool]]:
    """Return name and parent of each error of the docstring, and whether it says what the error means."""
    listed: list[tuple[str, str, bool]] = []
    path: list[str] = []
    for line in str(errors.__doc__).splitlines():
        match = _LINE.match(line)
        if match:
            depth = len(match["branches"] or "") // 4
            path[depth:] = [match["name"]]
            listed.append((match["name"], path[depth - 1] if depth else "Exception", bool(match["about"])))
    return listed


def defined() -> dict[str, str]:
    """Return the parent of each error of the module."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    return {error.__name__: error.__mro__[1].__name__ for error in classes}


def test_error_tree_in_the_docs_is_the_one_that_is_defined() -> None:
    assert {name: parent for name, parent, _ in documented()} == defined()
    assert all(has_meaning for name, _, has_meaning in documented() if name != "HeadraceError")


@pytest.mark.parametrize("name", sorted(defined()))
def test_errors_are_retryable_or_permanent(name: str) -> None:
    assert issubclass(vars(errors)[name], RetryableError) == (name in _RETRYABLE)


def test_error_message_has_three_parts() -> None:
    assert str(HeadraceError("what", where="where", next_step="next")) == "where: what\nnext"
