"""Puts the jars that Headrace needs where Spark has its own: for the image, whose drivers spark-submit starts."""

from __future__ import annotations

from pathlib import Path

import pyspark

from headrace.servers.jars import resolve_jars

GROUPS = ("spark", "aws", "postgres")


def link_jars(into: Path) -> None:
    """Links each jar into a folder; one that is there already under its name stays."""
    for group in GROUPS:
        for jar in resolve_jars(group, report=print):
            place = into / jar.name
            if not place.exists():
                place.symlink_to(jar)


if __name__ == "__main__":
    link_jars(Path(pyspark.__file__).parent / "jars")
