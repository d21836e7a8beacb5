"""Check that an optional library is installed before it is imported."""

from __future__ import annotations

from importlib.util import find_spec

from headrace.errors import MissingLibraryError


def require(library: str) -> None:
    """Raise a MissingLibraryError unless the library is installed."""
    if find_spec(library) is None:
        raise MissingLibraryError(f"{library} is not installed", next_step=f"Run: pip install {library}")
