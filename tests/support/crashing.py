"""An application that dies at a named place, within the process of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import pytest


class KilledError(BaseException):
    """The end of an application: nothing that it would have done later happens."""


def die_in(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[str]:
    """Return a list of places, to be filled: whichever of them these modules reach first ends the application, once."""
    places: list[str] = []

    def end_at(place: str) -> None:
        if place in places:
            places.remove(place)
            raise KilledError(place)

    for module in modules:
        monkeypatch.setattr(module, "fault_point", end_at)
    return places


@dataclass(frozen=True)
class Death:
    """A call of a function that ends the application, before it does anything or after it has done everything.

    `owner` is the module or class by which callers find the function. `matches` takes the call's arguments and, with `after`,
    then its result; a call for which it returns False is left alone.
    """

    owner: object
    function: str
    when: Literal["before", "after"]
    matches: Callable[..., bool] = lambda *args, **kwargs: True


@contextmanager
def killed_by(death: Death, *, what: str) -> Iterator[None]:
    """Run the block, which the death must end: an AssertionError that names `what` is raised if it does not."""
    function = getattr(death.owner, death.function)

    def die(*args: Any, **kwargs: Any) -> Any:
        if death.when == "after":
            result = function(*args, **kwargs)
            if not death.matches(*args, result, **kwargs):
                return result
        elif not death.matches(*args, **kwargs):
            return function(*args, **kwargs)
        raise KilledError(what)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(death.owner, death.function, die)
            yield
    except KilledError:
        return
    pytest.fail(f"{what}: nothing died {death.when} {death.function}")
