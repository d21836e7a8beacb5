"""An application that dies at a named place, within the process of a test."""

from __future__ import annotations

from types import ModuleType

import pytest


class KilledError(BaseException):
    """The end of an application: nothing that it would have done later happens."""


def die_in(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[str]:
    """Gives back a list of places, to be filled: whichever of them these modules reach first ends the application, once."""
    places: list[str] = []

    def reach(place: str) -> None:
        if place in places:
            places.remove(place)
            raise KilledError(place)

    for module in modules:
        monkeypatch.setattr(module, "reach", reach)
    return places
