"""Recognise outages of the catalog and the object store in errors, with real clients where possible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyiceberg.catalog import Catalog
from requests import exceptions as requests_errors
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from headrace.backoff import Backoff
from headrace.errors import BuildError, UnavailableError
from headrace.iceberg.catalog.outages import find_outage, translate_outages
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.pyiceberg_private.bounded_rest import BoundedRestCatalog
from headrace.iceberg.rows.duck import open_duckdb

NOBODY = "127.0.0.1:1"
NETWORK = "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: "


class Server:
    """A server that answers every request with `status` and `body`, or not at all."""

    status = 200
    body = b'{"defaults": {}, "overrides": {}}'

    def __init__(self) -> None:
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                if not played.status:
                    self.close_connection = True
                    return
                self.send_response(played.status)
                self.send_header("content-length", str(len(played.body)))
                self.end_headers()
                self.wfile.write(played.body)

            do_POST = do_HEAD = do_PUT = do_GET  # noqa: N815

            def log_message(self, *said: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    played = Server()
    yield played
    played.close()


def caught(attempt: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        attempt()
    return raised.value


def rest(address: str) -> Catalog:
    bounds = {"rest.client.connection-timeout-ms": "5000", "rest.client.socket-timeout-ms": "2000"}
    return BoundedRestCatalog("played", uri=f"http://{address}", **bounds)


def store(address: str) -> fs.S3FileSystem:
    return fs.S3FileSystem(access_key="a", secret_key="b", endpoint_override=address, scheme="http", region="us-east-1")


def java(trace: str) -> Py4JJavaError:
    """Return an error as Py4J raises it: what it says is asked of Java when somebody reads it."""
    client = SimpleNamespace(send_command=lambda command: "ys" + trace.replace("\\", "\\\\").replace("\n", "\\n"))
    return Py4JJavaError("An error occurred while calling o1.load.\n", SimpleNamespace(_target_id="o1", _gateway_client=client))


def test_outage_refused_catalog_connection(server: Server) -> None:
    outage = find_outage(caught(lambda: rest(NOBODY)))
    assert outage is not None
    assert outage.what == f"the catalog does not answer: {NOBODY}: Connection refused"
    assert (outage.where, "Headrace retries until" in outage.next_step) == ("catalog.uri", True)


@pytest.mark.parametrize(
    ("status", "is_away"),
    [(500, True), (502, True), (503, True), (504, True), (429, True), (0, True), (401, False), (403, False)],
)
def test_outage_catalog_http_status(server: Server, status: int, is_away: bool) -> None:
    catalog = rest(server.address)
    server.status, server.body = status, b""
    error = caught(lambda: catalog.load_table("a.b"))
    assert (find_outage(error) is not None) is is_away, error


def test_outage_missing_table_is_none(server: Server) -> None:
    catalog = rest(server.address)
    server.status = 404
    server.body = b'{"error": {"message": "no table", "type": "NoSuchTableException", "code": 404}}'
    assert find_outage(caught(lambda: catalog.load_table("a.b"))) is None


def test_outage_of_the_object_store_behind_a_catalog(server: Server) -> None:
    catalog = rest(server.address)
    server.status = 500
    why = b"Unable to execute HTTP request: Connection refused (SDK Attempt Count: 4)"
    server.body = b'{"error": {"message": "%s", "type": "SdkClientException", "code": 500}}' % why
    outage = find_outage(caught(lambda: catalog.load_table("a.b")))
    assert outage is not None
    assert outage.what.startswith(
        "the object store does not answer: the catalog reports: SdkClientException: Unable to execute"
    )


def test_outage_hanging_catalog_times_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = rest(server.address)
    hangs = threading.Event()
    monkeypatch.setattr(BaseHTTPRequestHandler, "send_response", lambda *arguments: hangs.wait(10))
    error = caught(lambda: catalog.load_table("a.b"))
    hangs.set()
    assert isinstance(error, requests_errors.ReadTimeout)
    assert find_outage(error) is not None


@pytest.mark.parametrize("ask", [lambda files: files.get_file_info("lake/x"), lambda files: files.open_input_file("lake/x")])
def test_outage_refused_object_store_connection(ask: Callable[[fs.S3FileSystem], object]) -> None:
    outage = find_outage(caught(lambda: ask(store(NOBODY))))
    assert outage is not None
    assert outage.what.startswith("the object store does not answer: Failed to connect to 127.0.0.1 port 1")
    assert outage.where == "warehouse"


@pytest.mark.parametrize(("status", "is_away"), [(503, True), (500, True), (403, False), (404, False)])
def test_outage_object_store_http_status(server: Server, status: int, is_away: bool) -> None:
    server.status, server.body = status, b""
    error = caught(lambda: store(server.address).open_input_file("lake/x"))
    assert (find_outage(error) is not None) is is_away, error


@pytest.mark.parametrize(("status", "is_away"), [(None, True), (0, True), (503, True), (403, False), (404, False)])
def test_outage_duckdb_object_store(server: Server, status: int | None, is_away: bool) -> None:
    server.status, server.body = status or 0, b""
    address = NOBODY if status is None else server.address
    storage = Storage.of({"s3.endpoint": f"http://{address}", "s3.access-key-id": "a", "s3.secret-access-key": "b"})
    with open_duckdb(storage=storage) as connection:
        error = caught(lambda: connection.execute("SELECT * FROM 's3://lake/x.parquet'"))
    assert (find_outage(error) is not None) is is_away, error


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (OSError(f"{NETWORK}28, Timeout was reached"), True),
        (OSError(f"{NETWORK}60, SSL peer certificate was not OK"), False),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation: No response body."), False),
        (OSError("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The bucket does not exist"), False),
        (FileNotFoundError(2, "No such file or directory", "/lake/x"), False),
        (OSError(28, "No space left on device"), False),
        (requests_errors.SSLError("certificate verify failed"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),  # of Spark's own process, where that has died
        (TypeError("a bug"), False),
    ],
)
def test_outage_ignores_other_errors(error: Exception, is_away: bool) -> None:
    assert (find_outage(error) is not None) is is_away


CATALOG_AWAY = """\
org.apache.iceberg.exceptions.RESTException: Error occurred while processing GET request
\tat org.apache.iceberg.rest.HTTPClient.execute(HTTPClient.java:355)
\tat org.apache.iceberg.spark.Spark3Util.loadIcebergTable(Spark3Util.java:663)
Caused by: org.apache.hc.client5.http.HttpHostConnectException: Connect to http://127.0.0.1:8181 failed: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
"""
STORE_AWAY = """\
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most recent failure: \
Lost task 0.3 in stage 7.0 (TID 21): software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: \
Connect to 127.0.0.1:9000 failed: Connection refused (SDK Attempt Count: 6)
\tat org.apache.iceberg.aws.s3.S3InputStream.openStream(S3InputStream.java:238)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2990)
"""
DATABASE_AWAY = """\
org.apache.iceberg.jdbc.UncheckedSQLException: Failed to get table a.b from catalog headrace
\tat org.apache.iceberg.jdbc.JdbcTableOperations.doRefresh(JdbcTableOperations.java:80)
Caused by: org.postgresql.util.PSQLException: Connection to 127.0.0.1:7777 refused. Check that the hostname and port are correct
"""
WORKER_AWAY = """\
org.apache.spark.shuffle.FetchFailedException: Failed to connect to /127.0.0.1:40123
\tat org.apache.spark.storage.ShuffleBlockFetcherIterator.throwFetchFailedException(ShuffleBlockFetcherIterator.scala:1239)
Caused by: java.net.ConnectException: Connection refused
"""
NO_KEYS = """\
software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of the providers in the chain
\tat org.apache.iceberg.aws.s3.S3OutputFile.create(S3OutputFile.java:80)
"""
NO_BUCKET = """\
software.amazon.awssdk.services.s3.model.NoSuchBucketException: The bucket does not exist (Service: S3, Status Code: 404)
"""


@pytest.mark.parametrize(
    ("trace", "part"),
    [
        (CATALOG_AWAY, "the catalog"),
        (STORE_AWAY, "the object store"),
        (DATABASE_AWAY, "the catalog"),
        (WORKER_AWAY, None),
        (NO_KEYS, None),
        (NO_BUCKET, None),
        ("java.lang.NullPointerException: nothing\n\tat org.apache.iceberg.rest.X.y(X.java:1)", None),
    ],
)
def test_outage_java_errors(trace: str, part: str | None) -> None:
    outage = find_outage(java(trace))
    if part is None:
        assert outage is None
    else:
        assert outage is not None
        assert outage.what.startswith(f"{part} does not answer: ")
        assert "127.0.0.1:" in outage.what
        assert "\n" not in outage.what


def test_outage_catalog_database() -> None:
    error = caught(lambda: create_engine(f"postgresql+psycopg://me:hidden@{NOBODY}/lake").connect())
    outage = find_outage(error)
    assert outage is not None
    assert outage.what.startswith("the catalog does not answer: ")
    assert "hidden" not in str(outage)
    assert find_outage(caught(lambda: create_engine("sqlite:////nowhere/at/all.db").connect())) is None
    assert find_outage(OperationalError("x", {}, Exception("connection refused"))) is None


def test_outage_is_found_in_causes() -> None:
    failure = BuildError("Spark could not compute the table")
    failure.__cause__ = java(STORE_AWAY)
    with pytest.raises(UnavailableError, match="object store") as raised, translate_outages():
        raise failure
    assert raised.value.__cause__ is failure
    with pytest.raises(BuildError, match="two keys"), translate_outages():
        raise BuildError("two keys")


def test_outage_message_redacts_logins() -> None:
    outage = find_outage(java(CATALOG_AWAY.replace("http://127", "http://me:hidden@127")))
    assert outage is not None
    assert "hidden" not in str(outage)


def test_commit_once_reraises_permanent_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.iceberg.commits.commit.COMMITS", Backoff(0.0, attempts=8))

    def commit() -> str:
        raise PermissionError("AWS Error ACCESS_DENIED during PutObject operation")

    with pytest.raises(PermissionError):
        commit_once(commit, find=lambda: None, where="a.b")


def test_commit_once_does_not_repeat_slow_client_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.iceberg.commits.commit._OUTAGE_SECONDS", 0.0)
    tries: list[int] = []

    def commit() -> str:
        tries.append(1)
        raise java(STORE_AWAY)

    with pytest.raises(UnavailableError, match="object store"):
        commit_once(commit, find=lambda: None, where="a.b")
    assert len(tries) == 1
