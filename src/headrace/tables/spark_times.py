"""How Spark writes times as text so that nothing is lost: to the microsecond, and with their zone where they have one."""

from __future__ import annotations

TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
TIMESTAMP_NTZ = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
EXACT_JSON = {"timestampFormat": TIMESTAMP, "timestampNTZFormat": TIMESTAMP_NTZ}
"""Options of `to_json`, whose default keeps milliseconds only."""
