"""Keep Python's garbage collector out of what stays anyway."""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 50_000
"""After how many new objects a process that builds looks for garbage. A small build makes thousands that live as long as it
does, and Python's default is 700."""


def freeze_loaded() -> None:
    """Leave all that is loaded by now out of later collections: modules, schemas, caches. Idempotent."""
    gc.collect()
    gc.freeze()


def collect_rarely() -> None:
    """Look for garbage after more objects than by default."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
