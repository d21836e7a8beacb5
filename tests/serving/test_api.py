"""The JSON API and pages of the control room, without a browser."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError
from pyiceberg.table import Table

from headrace.app.figures import list_streams, read_now
from headrace.app.serving import load_own_pages
from headrace.errors import BusyError, QueryError, SpecError, UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, list_bounds
from headrace.serving.figures import PipelineStatus
from headrace.serving.sql.query_service import QueryService
from headrace.serving.web.app import make_app
from headrace.serving.web.context import WebContext
from headrace.serving.web.guard import Lock
from headrace.serving.web.pages import OwnPages, load_pages
from headrace.spec import copy_pipeline, load_pipeline
from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import weather_pages
from tests.support.topics import make_topic, produce
from tests.support.waiting import wait_until

SLOW = "SELECT count(*) FROM range(9000000) a, range(9000000) b WHERE a.range ^ b.range = 3"
HOSTILE = "<script>alert(1)</script>"


def nodes(client: TestClient) -> dict[str, dict[str, object]]:
    nodes_by_name = client.get("/api/figures").json()["pipelines"][0]["nodes"]
    return dict(nodes_by_name)


def test_figures_before_the_first_landing(client: TestClient) -> None:
    figures = nodes(client)
    assert (figures["raw.charges"]["rows"], figures["raw.charges"]["state"]) == (0, "never")
    assert figures["topic shop_charges"] == {"rows": None, "lag": None, "state": "never"}, "Kafka is off"


def test_figures_of_a_stream_and_a_table(shop: ShopLake, client: TestClient) -> None:
    shop.land([f"e{number}" for number in range(12)], bad=["not JSON"])
    shop.build([f"e{number}" for number in range(12)], failed=3)
    figures = nodes(client)
    raw, staged = figures["raw.charges"], figures["staging.charges"]
    assert (raw["rows"], raw["bad_rows"], raw["batch_seconds"], raw["commit"], raw["state"]) == (12, 1, 0.25, 1, "fresh")
    assert raw["rate"] == pytest.approx(12 / 60)
    assert (staged["rows"], staged["bad_rows"], staged["failing"], staged["batch_seconds"]) == (12, 3, 1, 1.5)
    assert (staged["rows_in"], staged["rows_out"], staged["index_bytes"], staged["cached_row_bytes"]) == (15, 12, 0, 0)
    assert staged["phases"] == {"fetch": 0.012, "query": 0.3, "write": 0.02, "commit": 0.021}
    assert staged["behind_seconds"] == 0
    assert 0 <= float(str(staged["freshness_seconds"])) < 60


def test_status_and_the_control_room_agree(shop: ShopLake) -> None:
    shop.land(["a", "b"], bad=["no"])
    shop.build(["a"], failed=1)
    shop.land(["c"])

    def without_time(status: PipelineStatus) -> list[tuple[object, ...]]:
        streams = [
            (stream.label, stream.rows, stream.quarantined, stream.checkpoint_id, stream.state) for stream in status.streams
        ]
        return [*streams, *((table.table, table.rows, table.bad_rows, table.build_id, table.state) for table in status.tables)]

    assert without_time(shop.watch.figures()[0]) == without_time(read_now(shop.settings, [shop.pipeline])[0])


@pytest.mark.services
def test_lag_is_known_at_the_first_request_and_never_negative(tmp_path: Path, broker: str) -> None:
    lake = ShopLake(tmp_path, environ={"KAFKA_BOOTSTRAP_SERVERS": broker})
    topic = lake.pipeline.streams[0].topic
    if topic not in admin_client(KafkaServers(broker)).list_topics(timeout=10).topics:
        make_topic(broker, topic)
    produce(broker, topic, [b"{}"] * 3)
    sent = list_bounds(admin_client(KafkaServers(broker)), [(topic, 0)])[topic, 0][1]  # other tests may have sent some
    stream = lake.watch.figures()[0].streams[0]
    assert (stream.messages, stream.lag) == (sent, sent)
    lake.land(["a", "b", "c", "d"])
    bounds = {(topic, 0): (0, 3)}
    now = datetime.now(timezone.utc)
    assert list_streams(lake.catalog, lake.pipeline, bounds=bounds, now=now)[0].lag == 0, "read before the last commit"
    lake.watch.close()


def test_figures_read_only_changed_metadata(shop: ShopLake, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.land(["a"])
    shop.build(["a"])
    monkeypatch.setattr("headrace.app.watching._EVERY_SECONDS", 0.0)
    shop.watch.figures()
    loads: list[object] = []
    opened = type(shop.catalog)
    original = opened.load_table

    def load(self: Catalog, identifier: str) -> Table:
        loads.append(identifier)
        return original(self, identifier)

    monkeypatch.setattr(opened, "load_table", load)
    for _ in range(5):
        shop.watch.figures()
    assert loads == []
    shop.land(["b"])
    loads.clear()
    assert shop.watch.figures()[0].streams[0].rows == 2
    assert loads == ["raw.charges"]


def test_table_is_described(shop: ShopLake, client: TestClient) -> None:
    shop.land(["a", HOSTILE], bad=["not JSON"])
    shop.build(["a"], failed=1)
    described = client.get("/api/tables/staging.charges").json()
    assert (described["kind"], described["keys"], described["file"]) == ("upsert", ["id"], "staging/charges.sql")
    assert [read["name"] for read in described["inputs"]] == ["raw.charges"]
    assert {reader["name"] for reader in described["readers"]} == {"features.score", "features.spending", "marts.by_country"}
    assert {"sentence": "the address is known", "failed": 1}.items() <= described["expectations"][2].items()
    assert described["expectations"][1]["failed"] is None, "it was not checked yet"
    assert (described["snapshots"][0]["by"], described["snapshots"][0]["seconds"]) == ("build 1", 1.5)
    assert described["snapshots"][0]["phases"]["query"] == 0.3
    assert described["columns"][0]["from"] == ["raw.charges.id"]
    files = client.get("/api/tables/raw.charges/files").json()
    assert (files["count"], files["rows"], files["files"][0]["rows"]) == (1, 2, 2)
    sample = client.get("/api/tables/raw.charges/sample").json()["answer"]
    assert {row[0] for row in sample["rows"]} == {"a", HOSTILE}
    refused = client.get("/api/tables/raw.charges/refused").json()["answer"]
    assert [row[1:3] for row in refused["rows"]] == [["not JSON", "{"]]


@pytest.mark.parametrize("path", ["", "/files", "/sample", "/refused"])
def test_unknown_table_is_a_404(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/tables/raw.nothing{path}")
    assert answer.status_code == 404
    assert 'table not found: "raw.nothing"' in answer.json()["what"]


def test_table_that_was_never_written(client: TestClient) -> None:
    assert client.get("/api/tables/raw.charges").json()["snapshots"] == []
    assert client.get("/api/tables/raw.charges/files").json()["count"] == 0
    assert client.get("/api/tables/raw.charges/sample").json() == {"answer": None}


def test_query_returns_an_answer(shop: ShopLake, client: TestClient) -> None:
    shop.land(["a", "b"])
    answer = client.post("/api/query", json={"sql": "SELECT count(*) AS n, 1.50::DECIMAL(9,2) AS d FROM raw.charges"}).json()
    assert answer["rows"] == [[2, "1.50"]], "money is never a float"
    assert [(column["name"], column["number"]) for column in answer["columns"]] == [("n", True), ("d", True)]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "the query is empty"),
        ("DELETE FROM raw.charges", "only SELECT queries are allowed, and this is DELETE"),
        ("SELECT * FROM nowhere", 'table not found: "nowhere"'),
        ("SELECT * FROM read_text('/etc/passwd')", "a query can read only tables of the lake"),
        ("SELECT * FROM duckdb_secrets()", "a query can read only tables of the lake"),
        ("SELECT * FROM raw.charges, LATERAL duckdb_secrets() AS known", "a query can read only tables of the lake"),
        ("FROM query('FROM duckdb_secrets()')", "a query can read only tables of the lake"),
        ("SELECT * FROM", "query:1"),
    ],
)
def test_query_explains_what_is_wrong(client: TestClient, sql: str, says: str) -> None:
    answer = client.post("/api/query", json={"sql": sql})
    assert answer.status_code == 400
    assert says in f"{answer.json()['where']} {answer.json()['what']}"
    assert answer.json()["next_step"]


def test_query_is_bounded(shop: ShopLake) -> None:
    queries = QueryService()
    answer = queries.ask(shop.catalog, "SELECT * FROM range(5000)", most_rows=10)
    assert (len(answer.rows), answer.truncated) == (10, True)
    assert not queries.ask(shop.catalog, "SELECT * FROM range(10)", most_rows=10).truncated
    with pytest.raises(QueryError, match=r"longer than 0\.\d+ seconds"):
        queries.ask(shop.catalog, SLOW, most_seconds=0.2)
    queries.close()


def test_queries_wait_for_a_free_worker(shop: ShopLake) -> None:
    queries = QueryService(seats=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(queries.ask, shop.catalog, SLOW, most_seconds=300.0)
        (worker,) = wait_until(lambda: set(queries._pool._busy), what="the first query to run")
        with pytest.raises(BusyError, match="too many queries are running"):
            queries.ask(shop.catalog, "SELECT 1")
        worker.kill()
        assert isinstance(first.exception(), QueryError)
    assert queries.ask(shop.catalog, "SELECT 1 AS one").rows == ((1,),)
    queries.close()


def test_metrics_report_every_table(shop: ShopLake, client: TestClient) -> None:
    shop.land(["a", "b"], bad=["no"])
    shop.build(["a"], failed=1)
    text = client.get("/metrics").text
    samples = {
        (family.name, *(sample.labels.get(label, "") for label in ("stream", "table"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["headrace_rows", "charges", "raw.charges"] == 2
    assert samples["headrace_bad_rows", "charges", "raw.charges"] == 1
    assert samples["headrace_bad_rows", "", "staging.charges"] == 1
    assert samples["headrace_batch_seconds", "", "staging.charges"] == 1.5
    assert samples["headrace_build_rows_in", "", "staging.charges"] == 2
    assert samples["headrace_build_rows_out", "", "staging.charges"] == 1
    assert samples["headrace_index_bytes", "", "staging.charges"] == 0
    assert ("headrace_build_rows_in", "charges", "raw.charges") not in samples, "nothing is built there"
    phases = {
        (sample.labels["table"], sample.labels["phase"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "headrace_build_phase_seconds"
    }
    assert phases == {
        ("staging.charges", name): value
        for name, value in (("fetch", 0.012), ("query", 0.3), ("write", 0.02), ("commit", 0.021))
    }
    assert samples["headrace_pipeline_running", "", ""] == 0
    assert ("headrace_lag_messages", "charges", "raw.charges") not in samples, "Kafka is off: there is no lag to tell"


@pytest.mark.parametrize(
    "path", ["/", "/room", "/sql", "/tables/raw.charges", "/login", "/static/room.js", "/static/plotly.min.js"]
)
def test_pages_are_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_page_of_a_name_that_is_markup(client: TestClient) -> None:
    answer = client.get("/tables/<img src=x onerror=alert(1)>")
    assert answer.status_code == 404
    assert "&lt;img src=x" in answer.text
    assert "<img" not in answer.text


def test_first_page_is_the_dashboard_of_the_only_pipeline_that_runs(shop: ShopLake) -> None:
    pages = weather_pages()

    def first(*running: tuple[str, bool], own: OwnPages = pages) -> str:
        now = datetime.now(timezone.utc)
        status = tuple(PipelineStatus(name, runs, now, (), ()) for name, runs in running)
        context = WebContext((shop.pipeline,), lambda: status, shop.watch.catalog, shop.watch.topics)
        client = TestClient(make_app(context, Lock(None, local=True), own_pages=[own]), base_url="http://127.0.0.1")
        answer = client.get("/", follow_redirects=False)
        return str(answer.headers.get("location", "the control room"))

    assert first(("weather", True), ("payments", False)) == "/weather"
    assert first(("weather", True), ("payments", True)) == "the control room"
    assert first(("weather", False), ("payments", True)) == "the control room"
    assert first(("weather", False)) == "the control room"


def test_pages_that_can_not_be_loaded(shop: ShopLake, tmp_path: Path) -> None:
    path = tmp_path / "pages.py"
    path.write_text("router = 1\n")
    with pytest.raises(SpecError, match=r"router is a int, not a fastapi\.APIRouter"):
        load_pages(shop.pipeline, path)


def test_broken_pipeline_is_shown_with_its_error(shop: ShopLake) -> None:
    broken = {"other": SpecError('unknown key "formt"', where="pipelines/other/pipeline.yml:4", next_step="Fix the key.")}
    context = WebContext((), shop.watch.figures, shop.watch.catalog, shop.watch.topics, broken=broken)
    client = TestClient(make_app(context, Lock(None, local=True)), base_url="http://127.0.0.1")
    assert client.get("/api/flow").json()["broken"][0]["where"] == "pipelines/other/pipeline.yml:4"


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_unknown_page_is_a_404(client: TestClient) -> None:
    answer = client.get("/<b>nope</b>", headers=BROWSER)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "Page not found: /&lt;b&gt;nope&lt;/b&gt;" in answer.text
    assert '<a href="/room">' in answer.text
    assert "/static/base.css" in answer.text, "it looks like the others"
    for path, headers in (("/nope", {}), ("/nope", {"Accept": "application/json"}), ("/api/nope", BROWSER)):
        plain = client.get(path, headers=headers)
        assert (plain.status_code, plain.json()) == (
            404,
            {
                "what": f"page not found: {path}",
                "where": path,
                "next_step": "Check the URL; /openapi.json describes the API.",
            },
        )


def test_unsupported_method_is_a_405(client: TestClient) -> None:
    answer = client.get("/api/query")
    assert answer.status_code == 405
    assert answer.json() == {"what": "/api/query does not support GET", "where": "/api/query", "next_step": "Use POST."}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"SELECT 1", "the body is not JSON: Expecting value, at character 1"),
        (b'{"sql": }', "the body is not JSON: Expecting value, at character 9"),
        (b"[1]", "the body is not a JSON object"),
        (b"", "a JSON body is required"),
        (b"{}", "sql: Field required"),
        (b'{"sql": "SELECT 1", "SQL": ""}', "SQL: Extra inputs are not permitted"),
    ],
)
def test_invalid_body_is_a_422(client: TestClient, body: bytes, what: str) -> None:
    answer = client.post("/api/query", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["what"] == what
    assert answer.json()["next_step"] == "Fix the request; /openapi.json describes the API."


def test_query_error_has_no_advice_for_a_terminal(client: TestClient) -> None:
    problem = client.post("/api/query", json={"sql": "DROP TABLE raw.charges"}).json()
    assert problem["next_step"] == "Write one SELECT, such as: SELECT count(*) FROM lineage.events"
    assert "headrace query" not in str(problem)


def test_browser_gets_a_page_about_an_outage(shop: ShopLake) -> None:
    def away() -> tuple[PipelineStatus, ...]:
        raise UnavailableError("the catalog does not answer", next_step="Check it: headrace doctor")

    context = WebContext((shop.pipeline,), away, shop.watch.catalog, shop.watch.topics)
    with TestClient(make_app(context, Lock(None, local=True)), base_url="http://127.0.0.1") as client:
        answer = client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "The catalog does not answer" in answer.text
    assert "Check it: headrace doctor" in answer.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ServiceUnavailableError("starting"), 503),
        (OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Could not connect to server"), 503),
        (ForbiddenError("not you"), 500),
        (OSError("AWS Error ACCESS_DENIED during GetObject operation: No response body."), 500),
    ],
)
def test_table_during_an_outage_is_a_503(shop: ShopLake, error: Exception, status: int) -> None:
    def away() -> Catalog:
        raise error

    context = WebContext((shop.pipeline,), shop.watch.figures, away, shop.watch.topics)
    app = make_app(context, Lock(None, local=True))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get("/api/tables/raw.charges")
    assert answer.status_code == status
    if status == 503:
        assert answer.headers["retry-after"] == "2"
        assert "does not answer" in answer.json()["what"]
        assert "Headrace retries until" in answer.json()["next_step"]


def test_copy_of_weather_has_its_page_beside_the_original(shop: ShopLake, tmp_path: Path) -> None:
    copy_pipeline("weather", target_name="mine", folder=tmp_path)
    pipelines = [load_pipeline(name, environ={}, folder=tmp_path) for name in ("weather", "mine")]
    app = make_app(shop.context, Lock(None, local=True), own_pages=load_own_pages(pipelines))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for name in ("weather", "mine"):
            page = client.get(f"/{name}", headers=BROWSER)
            assert page.status_code == 200
            for file in re.findall(rf'(?:href|src)="(/pages/{name}/[^"]+)"', page.text):
                assert client.get(file).status_code == 200
            assert f"/pages/{name}/weather.js" in page.text
            assert client.get(f"/api/{name}").json()["what"] == "Postgres is not running"
