"""A worker process that answers queries of `headrace serve` one by one, within limits that the kernel enforces.

DuckDB's own memory limit doesn't cover all allocations of a query, and a damaged file can abort the process. Here either ends
only the worker. The worker has no credentials of the catalog: it sends the names of a query's tables, and the server answers
with their files.

Messages in both directions are JSON, prefixed with their length in four bytes:

1. server: `{"sql", "known", "rows", "seconds"}`
2. worker: `{"tables": […]}`
3. server: `{"sources": {name: {"relation", "folders"}}, "storage": {…}}`
4. worker: `{"answer": {…}}`

At step 2 or 4 the worker may send `{"error": {…}}` instead.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, QueryError

HEADER = struct.Struct("!I")
TOO_MUCH_MEMORY = "the query exceeds its memory limit"
ASK_FOR_LESS = "Query less data: fewer columns, rows or groups."
_NICENESS = 5  # the server and its other clients have priority
_GRACE_CPU_SECONDS = 5


@dataclass(frozen=True)
class WorkerLimits:
    """The limits of a worker. The kernel enforces `data_bytes`; DuckDB enforces `memory_bytes` and spills above it."""

    memory_bytes: int = 1024**3
    data_bytes: int = 2 * 1024**3
    spill_bytes: int = 1024**3
    answer_bytes: int = 16 * 1024**2


def main() -> None:
    """Answer queries until the server closes the pipe."""
    limits = WorkerLimits(**json.loads(sys.argv[1]))
    folder = Path.cwd()
    output = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not mix with the messages
    _restrict(limits)
    from headrace.serving.sql.worker_answers import answer_query  # after the limits, so that they apply to the libraries too

    _write(output, {"ready": True})
    while (request := _read()) is not None:
        _limit_cpu(float(request["seconds"]))
        try:
            reply = answer_query(request, limits, folder, lambda tables: _load(output, tables))
        except HeadraceError as error:
            reply = _as_error(error)
        except MemoryError:
            reply = _as_error(QueryError(TOO_MUCH_MEMORY, where="query", next_step=ASK_FOR_LESS))
        except RecursionError:
            reply = _as_error(QueryError("the query is nested too deeply", where="query", next_step=ASK_FOR_LESS))
        _write(output, reply)
    shutil.rmtree(folder, ignore_errors=True)


def _restrict(limits: WorkerLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.spill_bytes, limits.spill_bytes))
    with suppress(ValueError, OSError):  # macOS has no limit of the data segment: there the server checks the memory
        resource.setrlimit(resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))
    with suppress(OSError):  # if memory runs out, the kernel kills this process first, not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.nice(_NICENESS)


def _limit_cpu(seconds: float) -> None:
    """End this process by SIGXCPU, in case the server that would end it is gone."""
    used = time.process_time()
    allowed = int(used + seconds * (os.cpu_count() or 1)) + _GRACE_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.RLIM_INFINITY))


def _load(output: int, tables: tuple[str, ...]) -> Mapping[str, Any]:
    _write(output, {"tables": tables})
    sources = _read()
    if sources is None:
        raise SystemExit(0)
    return sources


def _as_error(error: HeadraceError) -> dict[str, object]:
    kind = type(error).__name__
    return {"error": {"kind": kind, "what": error.what, "where": error.where, "next_step": error.next_step}}


def _read() -> dict[str, Any] | None:
    header = sys.stdin.buffer.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(HEADER.unpack(header)[0]))
    return message


def _write(output: int, message: Mapping[str, object]) -> None:
    body = json.dumps(message).encode()
    left = memoryview(HEADER.pack(len(body)) + body)
    while left:
        left = left[os.write(output, left) :]


def as_argument(limits: WorkerLimits) -> str:
    """Return the limits as the argument of the worker's command line."""
    return json.dumps(dataclasses.asdict(limits))


if __name__ == "__main__":
    main()
