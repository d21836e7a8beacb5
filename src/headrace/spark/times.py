"""Lossless text formats for Spark's timestamps: with microseconds, and with the time zone if they have one."""

from __future__ import annotations

from collections.abc import Mapping

TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
TIMESTAMP_NTZ = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
EXACT_JSON = {"timestampFormat": TIMESTAMP, "timestampNTZFormat": TIMESTAMP_NTZ}
"""Options of `to_json`, whose default truncates to milliseconds."""


def json_options(options: Mapping[str, str]) -> str:
    """Return options of `to_json` and `from_json` as a SQL expression."""
    return "map({})".format(", ".join(f'"{name}", "{value}"' for name, value in options.items()))
