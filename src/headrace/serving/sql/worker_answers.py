"""Answer one request in a query worker: plan the query, get its tables, run it, and convert the result to JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import QueryError
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import open_duckdb
from headrace.serving.sql.answer import make_answer
from headrace.serving.sql.duck_query import Bound, SourceTable, execute, plan_query
from headrace.serving.sql.query_worker import WorkerLimits

Load = Callable[[tuple[str, ...]], Mapping[str, Any]]
"""Returns the sources of tables and the options of their storage."""


def answer_query(request: Mapping[str, Any], limits: WorkerLimits, folder: Path, load: Load) -> dict[str, object]:
    """Return the message with the answer. Raises a QueryError, or an UnavailableError during an outage of the storage."""
    started = time.monotonic()
    most_rows, seconds = int(request["rows"]), float(request["seconds"])
    planned = plan_query(str(request["sql"]), request["known"])
    loaded = load(planned.tables)
    sources = {name: SourceTable(source["relation"], tuple(source["folders"])) for name, source in loaded["sources"].items()}
    left = max(seconds - (time.monotonic() - started), 0.001)
    bound = Bound(most_rows + 1, left, limits.memory_bytes, folder / "spill", limits.spill_bytes)
    with open_duckdb(reads_iceberg=bool(sources), storage=Storage.of(loaded["storage"])) as connection:
        result = execute(connection, planned, sources, bound=bound)
        if result.nbytes > limits.answer_bytes:
            raise _too_long(limits)
        answer = make_answer(result, most_rows=most_rows)
    message: dict[str, object] = {"answer": answer.to_message()}
    if len(json.dumps(message)) > limits.answer_bytes:
        raise _too_long(limits)
    return message


def _too_long(limits: WorkerLimits) -> QueryError:
    most = limits.answer_bytes // 1024**2
    return QueryError(
        f"the result has more than {most} MB",
        where="query",
        next_step="Select fewer columns or rows, or shorten strings: left(…).",
    )
