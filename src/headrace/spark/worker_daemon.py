"""The daemon that forks Spark's Python workers, without the zip files that Spark puts on their path.

Before each task a worker drops its import caches, and zip files and jars on the path are read again: this costs 0.2 s per task,
for a copy of pyspark that is installed anyway.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from zipimport import zipimporter

ARCHIVES = (".zip", ".jar")


def drop_archives() -> None:
    """Remove archives from the path and from the import caches.

    They stay if pyspark is only in an archive, as in an image that has Spark without the Python package.
    """
    whole = list(sys.path)
    sys.path[:] = [entry for entry in whole if not entry.endswith(ARCHIVES)]
    if find_spec("pyspark") is None:
        sys.path[:] = whole
        return
    # Python's pickle looks for Jython's package `org` and finds the one in a jar, which would cache the jar again.
    for name in [name for name, module in sys.modules.items() if _is_in_archive(module)]:
        del sys.modules[name]
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):  # for an archive, or a folder in one
            del sys.path_importer_cache[entry]


def _is_in_archive(module: ModuleType) -> bool:
    return any(entry.endswith(ARCHIVES) for place in getattr(module, "__path__", ()) for entry in Path(place).parts)


if __name__ == "__main__":
    drop_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
