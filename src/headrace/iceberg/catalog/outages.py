"""Which errors mean that the catalog or the object store is away, whoever asked them: PyIceberg, Arrow, Spark or a database.

Nothing else decides that. An error is told by the names of its class and of those that it derives from, so that no client has
to be loaded to know its errors; one of Java by its stack trace, where the reason may be on any line. What is refused (a
password, a bucket that there is not, a certificate) and what is a bug is not "away": it stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from headrace.errors import UnavailableError

_NOT_AWAY = {"requests.exceptions.SSLError"}
_CLIENTS = {
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "requests.exceptions.ChunkedEncodingError",
    "botocore.exceptions.HTTPClientError",
    "thrift.transport.TTransport.TTransportException",
}
"""No answer came, or only a part of one."""
_ANSWERS = {
    "pyiceberg.exceptions.ServerError",
    "pyiceberg.exceptions.ServiceUnavailableError",
    "pyiceberg.exceptions.CommitStateUnknownException",
    "pyiceberg.exceptions.TooManyRequestsError",
}
"""A REST catalog's 5xx and 429: of a catalog that starts, that is too busy, or that can't reach what it needs itself."""
_JAVA = {"py4j.protocol.Py4JJavaError", "pyspark.errors.exceptions.captured.CapturedException"}

_ARROW = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT"
    r"|\w+ \(HTTP status (?:5\d\d|429)\))"
    r"(?!.*curlCode: (?:51|53|54|58|59|60|66|77|82|83|90|91)\b)"  # those of a certificate
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
"""Spark's own parts lose one another too: only where a catalog's client is in the trace is it the catalog that is away."""
_LOGIN = re.compile(r"//[^/@\s]+@")


@contextmanager
def translate_outages() -> Iterator[None]:
    """Turn an error in the block that means that the catalog or the object store is away into an UnavailableError; any other
    stays what it is."""
    try:
        yield
    except UnavailableError:
        raise
    except Exception as error:
        away = find_away(error)
        if away is None:
            raise
        raise away from error


def find_away(error: BaseException) -> UnavailableError | None:
    """Return what to raise for an error that means that the catalog or the object store is away, also where another error
    was made of that one; None for any other."""
    for each in _chain(error):
        if isinstance(each, UnavailableError):
            return each
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(each).__mro__}
        if names & _NOT_AWAY:
            return None
        found = _read(each, names)
        if found is not None:
            return found
    return None


def _read(error: BaseException, names: set[str]) -> UnavailableError | None:
    if names & _JAVA:
        return _read_java(str(getattr(error, "_stackTrace", None) or error))
    says = str(error)
    if names & _CLIENTS:
        return _catalog(_address_and_cause(error))
    if names & _ANSWERS:
        store = _JAVA_STORE.search(says)
        return _object_store(f"the catalog says: {store[0]}") if store else _catalog(says)
    if isinstance(error, OSError) and _ARROW.search(says):
        return _object_store(says.rpartition("Details: ")[2])
    if "_duckdb.Error" in names and _DUCKDB.search(says):
        return _object_store(says)
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
    return _away("the catalog", "catalog.uri", reason)


def _object_store(reason: str) -> UnavailableError:
    return _away("the object store", "warehouse", reason)


def _away(what: str, setting: str, reason: str) -> UnavailableError:
    first = _LOGIN.sub("//***@", reason.strip().partition("\n")[0])
    return UnavailableError(
        f"{what} does not answer: {first}" if first else f"{what} does not answer",
        where=setting,
        next_step=f"It goes on by itself when {what} answers. Which one is meant: headrace doctor",
    )


def _address_and_cause(error: BaseException) -> str:
    """Return where a request went and what came of it, without all that its client says around that."""
    *_, cause = _chain(error)
    says = getattr(cause, "strerror", None) or str(cause)
    url = getattr(getattr(error, "request", None), "url", None)
    host = (urlsplit(url).netloc if isinstance(url, str) else "").rpartition("@")[2]
    return f"{host}: {says}" if host else says


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came of, the nearest first."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)
