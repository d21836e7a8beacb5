"""The process that forks Spark's Python workers, without the zip files that Spark puts on their path.

Before each task a worker drops its import caches, and a zip file or jar on the path is then read again: 0.2 s for every task,
for a copy of pyspark that is installed anyway.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

ARCHIVES = (".zip", ".jar")


def drop_archives() -> None:
    """Takes archives off the path, and out of the caches that would be filled from them again.

    They stay where pyspark is in them alone, as in an image that has Spark and no package of it.
    """
    whole = list(sys.path)
    sys.path[:] = [entry for entry in whole if not entry.endswith(ARCHIVES)]
    if find_spec("pyspark") is None:
        sys.path[:] = whole
        return
    for entry in list(sys.path_importer_cache):
        if entry.endswith(ARCHIVES):
            del sys.path_importer_cache[entry]


if __name__ == "__main__":
    drop_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
