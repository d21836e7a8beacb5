"""A REST catalog whose tokens end: PyIceberg and Spark each ask for another, and nothing is missing or doubled."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from headrace.errors import SettingsError
from headrace.iceberg.catalog.tables import count_rows, load_table, open_catalog
from headrace.servers import kafka, object_store, postgres, rest_catalog
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName
from tests.profiles.secret_search import make_pipeline
from tests.profiles.token_proxy import TokenProxy, token_proxy
from tests.programs.stacked import running_stack
from tests.support.lake import Lake
from tests.support.waiting import wait_until

EVENTS, ROUNDS = 10_000, 4
LANDED, BUILT = TableName.parse("secured.events"), TableName.parse("staging.latest_events")
SERVERS = (kafka.BROKER, postgres.SERVER, object_store.SERVER, rest_catalog.SERVER)


class Empty(BaseHTTPRequestHandler):
    """A catalog without a table."""

    def do_GET(self) -> None:
        body = b'{"overrides": {}, "defaults": {}}' if self.path.startswith("/v1/config") else b'{"namespaces": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def empty() -> Iterator[TokenProxy]:
    server = HTTPServer(("127.0.0.1", 0), Empty)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    with token_proxy(f"http://127.0.0.1:{server.server_address[1]}", told_seconds=3600) as proxy:
        yield proxy
    server.shutdown()
    server.server_close()
    thread.join()


def test_ended_token_is_not_shown_to_who_gives_another(empty: TokenProxy, tmp_path: Path) -> None:
    catalog = open_catalog(load_settings(flags={}, environ=empty.environ, folder=tmp_path))
    for _ in range(3):
        empty.end_tokens()
        assert catalog.list_namespaces() == []
    assert empty.problems == []
    assert sum(empty.refused.values()) == 3


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HEADRACE_CATALOG_CREDENTIAL", "headrace:guessed", "invalid_client"),
        ("HEADRACE_CATALOG_SCOPE", "everything", "invalid_scope"),
    ],
)
def test_who_is_not_let_in_is_told_so(empty: TokenProxy, tmp_path: Path, name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as raised:
        open_catalog(load_settings(flags={}, environ={**empty.environ, name: value}, folder=tmp_path))
    assert "guessed" not in str(raised.value)


@pytest.mark.long
@pytest.mark.services
@pytest.mark.spark
def test_pipeline_lands_and_builds_while_tokens_end(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with running_stack(tmp_path / "stack", servers=SERVERS) as stack:
        home = stack.home_settings
        store, catalog, keys = (
            object_store.running_object_store(home),
            rest_catalog.running_rest_catalog(home),
            object_store.find_keys(home),
        )
        assert store is not None
        assert catalog is not None
        environ = {
            "HEADRACE_WAREHOUSE": rest_catalog.WAREHOUSE,
            "HEADRACE_S3_ENDPOINT": store.endpoint,
            "AWS_REGION": object_store.REGION,
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "HEADRACE_SPARK_MASTER": "local[2]",
            "HEADRACE_BUILD_CACHE_MB": "1",  # builds scan with Spark, and Java's client commits them
        }
        with token_proxy(catalog.url, told_seconds=4, slack_seconds=3.0) as proxy:
            run_while_tokens_end(Lake(tmp_path / "work", stack.servers, "oauth2-input"), proxy, {**environ, **proxy.environ})


def run_while_tokens_end(lake: Lake, proxy: TokenProxy, environ: dict[str, str]) -> None:
    make_pipeline(lake.folder / "pipelines" / "secured")
    catalog = open_catalog(lake.settings(**environ))

    def has(name: TableName, rows: int) -> bool:
        return count_rows(load_table(catalog, name)) == rows

    def have_asked(before: dict[str, int]) -> bool:
        load_table(catalog, LANDED)
        return all(proxy.given[name] > many for name, many in before.items())

    def send() -> None:
        lake.run("generate", "secured", "--rate", "0", "--count", str(EVENTS), **environ)

    send()
    running = lake.start("run", "secured", **environ)
    try:
        for number in range(1, ROUNDS + 1):
            for table in (LANDED, BUILT):
                wait_until(partial(has, table, number * EVENTS), what=f"{table}, {number} times", seconds=180)
            wait_until(partial(have_asked, dict(proxy.given)), what="another token of each", seconds=60)
            if number < ROUNDS:
                send()
        running.signal(signal.SIGINT)
        assert running.wait(seconds=120) == 0, running.said()
    finally:
        running.end()
    lake.run("verify", "secured", **environ)
    assert proxy.problems == []
    assert len(proxy.given) == 2, proxy.given  # Python's client and Java's
