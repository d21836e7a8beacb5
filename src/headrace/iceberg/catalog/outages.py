"""Recognise outages of the catalog and the object store in errors of PyIceberg, Arrow, DuckDB, Spark and the databases.

This is the only module that decides whether an error is an outage. It matches the names of an error's class and base classes,
so that no client library is imported for its exceptions. It matches Java errors by their stack trace, where the reason may be
on any line. Rejected requests (a wrong password, a missing bucket, an invalid certificate) and bugs are not outages: they are
re-raised unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from headrace.errors import UnavailableError

_NOT_OUTAGES = {"requests.exceptions.SSLError"}
_CLIENTS = {
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "requests.exceptions.ChunkedEncodingError",
    "botocore.exceptions.HTTPClientError",
    "thrift.transport.TTransport.TTransportException",
}
"""The client got no response, or only a part of one."""
_ANSWERS = {
    "pyiceberg.exceptions.ServerError",
    "pyiceberg.exceptions.ServiceUnavailableError",
    "pyiceberg.exceptions.CommitStateUnknownException",
    "pyiceberg.exceptions.TooManyRequestsError",
}
"""A REST catalog's 5xx and 429: it is starting, overloaded, or can't reach its own backend."""
_JAVA = {"py4j.protocol.Py4JJavaError", "pyspark.errors.exceptions.captured.CapturedException"}

_ARROW = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT"
    r"|\w+ \(HTTP status (?:5\d\d|429)\))"
    r"(?!.*curlCode: (?:51|53|54|58|59|60|66|77|82|83|90|91)\b)"  # certificate errors
)
_DUCKDB = re.compile(r"^(?!.*certificate).*(?: error for HTTP [A-Z]+ to |HTTP (?:5\d\d|429)\b)")
_DATABASE = re.compile(
    r"connection refused|connection reset|connection timeout|timed out|closed the connection|the connection is (?:lost|closed)"
    r"|terminating connection|database system is (?:starting up|shutting down|in recovery)|could not receive data",
    re.IGNORECASE,
)
_JAVA_STORE = re.compile(
    r"SdkClientException: Unable to execute HTTP request[^\n]*|ApiCall(?:Attempt)?TimeoutException[^\n]*"
    r"|S3Exception:[^\n]*Status Code: 5\d\d[^\n]*"
)
_JAVA_CATALOG = re.compile(
    r"iceberg\.exceptions\.(?:ServiceUnavailable|ServiceFailure|CommitStateUnknown)Exception[^\n]*"
    r"|(?:java\.net\.(?:Connect|SocketTimeout|Socket|UnknownHost|NoRouteToHost)"
    r"|HttpHostConnect|NoHttpResponse|ConnectTimeout|ConnectionClosed)Exception[^\n]*"
    r"|PSQLException: (?:Connection to [^\n]* refused|The connection attempt failed|An I/O error occurred"
    r"|This connection has been closed|FATAL: (?:the database system is|terminating connection))[^\n]*"
)
_OF_CATALOG = re.compile(r"org\.apache\.iceberg\.(?:rest|jdbc|hive|aws\.glue)\.")
"""Spark's own processes lose connections too. It is a catalog outage only if the trace contains a catalog client."""
_LOGIN = re.compile(r"//[^/@\s]+@")


@contextmanager
def translate_outages() -> Iterator[None]:
    """Translate an outage of the catalog or the object store into an UnavailableError; re-raise other errors unchanged."""
    try:
        yield
    except UnavailableError:
        raise
    except Exception as error:
        outage = find_outage(error)
        if outage is None:
            raise
        raise outage from error


def find_outage(error: BaseException) -> UnavailableError | None:
    """Return the UnavailableError for an error that an outage of the catalog or the object store caused, or None.

    Causes and contexts of the error are searched, too.
    """
    for cause in _chain(error):
        if isinstance(cause, UnavailableError):
            return cause
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(cause).__mro__}
        if names & _NOT_OUTAGES:
            return None
        outage = _read(cause, names)
        if outage is not None:
            return outage
    return None


def _read(error: BaseException, names: set[str]) -> UnavailableError | None:
    if names & _JAVA:
        return _read_java(str(getattr(error, "_stackTrace", None) or error))
    message = str(error)
    if names & _CLIENTS:
        return _catalog(_address_and_cause(error))
    if names & _ANSWERS:
        store = _JAVA_STORE.search(message)
        return _object_store(f"the catalog reports: {store[0]}") if store else _catalog(message)
    if isinstance(error, OSError) and _ARROW.search(message):
        return _object_store(message.rpartition("Details: ")[2])
    if "_duckdb.Error" in names and _DUCKDB.search(message):
        return _object_store(message)
    if "sqlalchemy.exc.OperationalError" in names:
        origin = getattr(error, "orig", None)
        if type(origin).__module__.startswith("psycopg") and _DATABASE.search(str(origin)):
            return _catalog(str(origin))
    return None


def _read_java(trace: str) -> UnavailableError | None:
    store = _JAVA_STORE.search(trace)
    if store:
        return _object_store(store[0])
    catalog = _JAVA_CATALOG.search(trace)
    return _catalog(catalog[0]) if catalog and _OF_CATALOG.search(trace) else None


def _catalog(reason: str) -> UnavailableError:
    return _outage("the catalog", "catalog.uri", reason)


def _object_store(reason: str) -> UnavailableError:
    return _outage("the object store", "warehouse", reason)


def _outage(what: str, setting: str, reason: str) -> UnavailableError:
    first = _LOGIN.sub("//***@", reason.strip().partition("\n")[0])
    return UnavailableError(
        f"{what} does not answer: {first}" if first else f"{what} does not answer",
        where=setting,
        next_step=f"Headrace retries until {what} answers. To see its address, run: headrace doctor",
    )


def _address_and_cause(error: BaseException) -> str:
    """Return the host of a request and the root cause of its failure, without the client's wrapping."""
    *_, cause = _chain(error)
    reason = getattr(cause, "strerror", None) or str(cause)
    url = getattr(getattr(error, "request", None), "url", None)
    host = (urlsplit(url).netloc if isinstance(url, str) else "").rpartition("@")[2]
    return f"{host}: {reason}" if host else reason


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the nearest first."""
    visited: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
