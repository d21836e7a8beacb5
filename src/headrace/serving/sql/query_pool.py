"""A pool of workers for the queries of `headrace serve`: started on demand, reused, and killed at a limit."""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import psutil

from headrace.errors import HeadraceError, QueryError, UnavailableError
from headrace.serving.sql.answer import Answer
from headrace.serving.sql.duck_query import SourceTable
from headrace.serving.sql.query_worker import ASK_FOR_LESS, HEADER, TOO_MUCH_MEMORY, WorkerLimits, as_argument

LIMITS = WorkerLimits()
_START_SECONDS = 60.0
_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_MOST_QUERIES = 200
_WARM_BYTES = 400 * 1024**2
"""A worker that uses more than this after a query is replaced, because allocators don't return all memory."""
_PASSED_ON = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "NO_PROXY", "no_proxy"})
_PASSED_PREFIXES = ("AWS_", "SSL_CERT_", "HTTP", "http")
_ERRORS: Mapping[str, type[HeadraceError]] = {"QueryError": QueryError, "UnavailableError": UnavailableError}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """The tables of a query, and the options of their storage."""

    tables: Mapping[str, SourceTable]
    storage: Mapping[str, str]


LoadSources = Callable[[tuple[str, ...]], Sources]


@dataclass(frozen=True)
class Request:
    """A query, the tables that it may read, and its limits of rows and seconds."""

    sql: str
    known: Sequence[str]
    rows: int
    seconds: float


class QueryPool:
    """A pool of worker processes. Thread-safe; the caller limits how many queries run at the same time."""

    def __init__(self, limits: WorkerLimits = LIMITS) -> None:
        self._limits = limits
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._closed = False

    def run(self, request: Request, load: LoadSources) -> Answer:
        """Return the answer to one query. Raises a QueryError if it reaches a limit or its worker ends."""
        worker = self._take_idle() or self._start()
        with self._lock:
            self._busy.add(worker)
        try:
            return worker.run(request, load)
        finally:
            with self._lock:
                self._busy.discard(worker)
                keep = not self._closed and worker.is_reusable()
                if keep:
                    self._idle.append(worker)
            if not keep:
                worker.close()

    def _take_idle(self) -> _Worker | None:
        """Return a live idle worker, if any. The kernel kills idle workers first when memory is short."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None or worker.is_alive():
                return worker
            worker.close()

    def _start(self) -> _Worker:
        try:
            return _Worker(self._limits)
        except OSError as error:
            raise UnavailableError(
                f"the query worker can't be started: {error.strerror or error}",
                where="query",
                next_step="Make the folder for temporary files (TMPDIR) writable, and check that memory is available.",
            ) from error

    def close(self) -> None:
        """End all workers. Running queries fail, and their callers close the workers."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for worker in busy:
            worker.stop()
        for worker in idle:
            worker.close()


class _Worker:
    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-query-"))
        self._log_file = self._folder / "log"
        self._queries = 0
        self._is_sound = True
        self._is_stopped = False
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.serving.sql.query_worker", as_argument(limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env=_environment(),
                start_new_session=True,  # Ctrl-C must reach only the server
            )
        try:
            self._receive(time.monotonic() + _START_SECONDS)
        except QueryError as error:
            self.close()
            raise UnavailableError(
                f"the query worker did not start: {error.what}", where="query", next_step="Try again; read the server's log."
            ) from error

    def run(self, request: Request, load: LoadSources) -> Answer:
        started = time.monotonic()
        deadline = started + request.seconds + _GRACE_SECONDS
        self._queries += 1
        self._is_sound = False  # not reused unless the answer arrives
        self._send(asdict(request))
        reply = self._receive(deadline, request.seconds)
        if "tables" in reply:
            try:
                sources = load(tuple(reply["tables"]))
            except BaseException:
                self.kill()
                raise
            self._send(
                {"sources": {name: asdict(source) for name, source in sources.tables.items()}, "storage": sources.storage}
            )
            reply = self._receive(deadline, request.seconds)
        problem = reply.get("error")
        # Memory that a query allocated before it reached the limit may still count for the next query.
        self._is_sound = problem is None or not problem["what"].startswith(TOO_MUCH_MEMORY)
        if problem is not None:
            kind = _ERRORS.get(problem["kind"], QueryError)
            raise kind(problem["what"], where=problem["where"], next_step=problem["next_step"])
        return Answer.from_message(reply["answer"], seconds=time.monotonic() - started)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_reusable(self) -> bool:
        return self._is_sound and self._queries < _MOST_QUERIES and self.is_alive() and self._memory() < _WARM_BYTES

    def stop(self) -> None:
        """End the process because the server stops."""
        self._is_stopped = True
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and remove what it wrote."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # unsent data is not needed any more
                    _log.debug("the query worker had already closed its pipe")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        body = json.dumps(message).encode()
        try:
            self._process.stdin.write(HEADER.pack(len(body)) + body)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._explain_end() from None

    def _receive(self, deadline: float, seconds: float = _START_SECONDS) -> dict[str, Any]:
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline, seconds))
        if length > self._limits.answer_bytes:
            self.kill()
            raise QueryError("the result is too large", where="query", next_step="Select fewer columns or rows.")
        message: dict[str, Any] = json.loads(self._read(length, deadline, seconds))
        return message

    def _read(self, length: int, deadline: float, seconds: float) -> bytes:
        """Return this many bytes of the worker's output. Kill it at the deadline, or if it uses too much memory."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        received = bytearray()
        while len(received) < length:
            if select.select([pipe], [], [], _LOOK_SECONDS)[0]:
                chunk = os.read(pipe, length - len(received))
                if not chunk:
                    raise self._explain_end()
                received += chunk
            elif time.monotonic() > deadline:
                self.kill()
                raise QueryError(
                    f"the query ran for longer than {seconds:g} seconds",
                    where="query",
                    next_step="Query less data, or run it in a terminal with headrace query, which has no limit.",
                )
            elif self._memory() > self._limits.data_bytes:
                self.kill()
                raise self._too_much_memory()
        return bytes(received)

    def _memory(self) -> int:
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _explain_end(self) -> QueryError:
        """Return an error with the reason for which the worker ended."""
        code = self._process.wait()
        if self._is_stopped:
            return QueryError("the server is stopping", where="query", next_step="Try again after it has restarted.")
        output = self._log_file.read_text(errors="replace")[-2_000:].strip()
        _log.warning("a query worker ended with %s: %s", code, output.splitlines()[-1] if output else "no output")
        if code == -signal.SIGKILL or "bad_alloc" in output or "MemoryError" in output or "memory" in output.lower():
            return self._too_much_memory()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return QueryError(
            f"the query crashed its worker ({name}): a file of a table may be damaged",
            where="query",
            next_step="Query other tables or columns. The server's log has the last output of the worker.",
        )

    def _too_much_memory(self) -> QueryError:
        most = self._limits.data_bytes // 1024**2
        return QueryError(f"{TOO_MUCH_MEMORY} ({most:,} MB)", where="query", next_step=ASK_FOR_LESS)


def _environment() -> dict[str, str]:
    """Return the variables of this environment that a worker needs to reach the storage, without the server's secrets."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_PREFIXES)}
    return {**passed, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
