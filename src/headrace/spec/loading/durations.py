"""Durations in pipeline.yml and in the settings of tables."""

from __future__ import annotations

import re

from headrace.spec.loading.document import Value

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|seconds?|s|minutes?|m|hours?|h|days?|d)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_seconds(value: Value, *, example: str) -> float:
    """Return the seconds that `500ms`, `10s`, `1m`, `1h` or `1 hour` means."""
    match = DURATION.fullmatch(value.text(example=example).strip())
    if not match:
        raise value.error(f'"{value.text()}" is not a duration', fix="Write a duration such as 500ms, 10s or 1m")
    return float(match[1]) * SECONDS["ms" if match[2] == "ms" else match[2][0]]


def read_retention(value: Value) -> float:
    """Return the seconds for which a table's snapshots stay: at least a second, because 0 would be no history at all."""
    seconds = read_seconds(value, example="7 days")
    if seconds < 1:
        raise value.error(f'"{value.key}" must be at least 1s', fix="Write a duration such as 7 days")
    return seconds
