"""The pages in a real browser: they update, recover from outages, and never execute a table's values."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect

from headrace.servers.postgres import running_postgres, start_postgres, stop_postgres
from headrace.settings import Settings, load_settings
from tests.serving.browser import PHONE, Watched, find_browser, open_browser
from tests.serving.played_topics import TOPIC, PlayedTopics
from tests.serving.server import Server
from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import empty, publish, this_minute
from tests.support.ports import with_own_ports
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.services,
    pytest.mark.skipif(
        find_browser() is None, reason="NO BROWSER IS INSTALLED: the pages are not tested. apt install chromium"
    ),
]

HOSTILE = "<script>alert('city')</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def postgres_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of a Postgres for these tests, which one of them kills."""
    settings = with_own_ports(load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("postgres")))
    start_postgres(settings, detached=False, report=lambda sentence: None)
    yield settings
    stop_postgres(settings)


@pytest.fixture
def dsn(postgres_home: Settings) -> str:
    dsn_of_server = start_postgres(postgres_home, detached=False, report=lambda sentence: None).dsn
    empty(dsn_of_server)
    return dsn_of_server


@pytest.fixture
def server(dsn: str, postgres_home: Settings, make_weather_app: Callable[..., FastAPI]) -> Iterator[Server]:
    def conninfo() -> str | None:
        running = running_postgres(postgres_home)
        return running.dsn if running else None

    server = Server(make_weather_app(conninfo))
    server.start()
    yield server
    server.stop()


def chart(watched: Watched, city: str) -> Callable[[], int]:
    """Return the number of points in a city's chart."""
    return lambda: watched.page.locator(f'[data-city="{city}"] .scatterlayer .point').count()


def test_charts_get_new_points_without_a_reload(browser: Browser, server: Server, dsn: str) -> None:
    watched = Watched(browser)
    watched.page.goto(f"{server.url}/weather")
    watched.page.evaluate("window.stayed = true")
    cards = watched.page.locator(".city")
    expect(cards).to_have_count(10)
    expect(cards.first.locator(".state")).to_have_text("no data")
    publish(dsn, [("Miami", this_minute(2), 80.0), ("Miami", this_minute(1), 81.0), ("Boston", this_minute(60), 40.0)])
    wait_until(lambda: chart(watched, "Miami")() == 2, what="two points of Miami")
    expect(watched.page.locator("#points")).to_have_text("3")
    expect(watched.page.locator('[data-city="Miami"] .state')).to_have_text("live")
    expect(watched.page.locator('[data-city="Boston"] .state')).to_contain_text("stale")
    open_minute = this_minute()
    publish(dsn, [("Miami", open_minute, 90.0)])
    wait_until(lambda: chart(watched, "Miami")() == 3, what="a third point")
    publish(dsn, [("Miami", open_minute, 95.5)])
    expect(watched.page.locator('[data-city="Miami"] .now')).to_have_text("95.5 °F")
    assert chart(watched, "Miami")() == 3, "an open minute changes, and is no new point"
    assert watched.page.evaluate("window.stayed"), "without a reload"
    watched.page.locator('[data-city="Miami"] .plot').hover()
    expect(watched.page.locator('[data-city="Miami"] .hoverlayer')).to_contain_text("°F")
    assert watched.complaints == []


def test_city_that_is_a_script_is_shown_as_text(browser: Browser, server: Server, dsn: str) -> None:
    watched = Watched(browser)
    publish(dsn, [(HOSTILE, this_minute(), 1.0)])
    watched.page.goto(f"{server.url}/weather")
    expect(watched.page.locator(".city h2").last).to_have_text(HOSTILE)
    assert watched.page.locator(".city script, .city img").count() == 0
    assert watched.complaints == []


def test_rows_that_are_scripts_are_shown_as_text(browser: Browser, server: Server, shop: ShopLake) -> None:
    watched = Watched(browser)
    shop.land([HOSTILE], bad=[HOSTILE], country=HOSTILE)
    watched.page.goto(f"{server.url}/tables/raw.charges")
    expect(watched.page.locator("#sample td").first).to_have_text(HOSTILE)
    expect(watched.page.locator("#refused")).to_contain_text(HOSTILE)
    watched.page.goto(f"{server.url}/sql")
    watched.page.fill("#sql", "SELECT id, country, kafka_offset FROM raw.charges")
    watched.page.keyboard.press("Control+Enter")
    expect(watched.page.locator("#answer td").first).to_have_text(HOSTILE)
    watched.page.get_by_role("button", name="Chart").click()
    expect(watched.page.locator("#answer .xtick").first).to_contain_text("<script>")
    assert watched.page.locator("#answer script, #answer img").count() == 0
    assert watched.complaints == []


def test_table_page_shows_the_phases_of_its_last_build(browser: Browser, server: Server, shop: ShopLake) -> None:
    watched = Watched(browser, size=PHONE)
    shop.land(["a", "b"])
    shop.build(["a", "b"], failed=1)
    watched.page.goto(f"{server.url}/tables/staging.charges")
    for label, value in (
        ("rows in", "3"),
        ("rows out", "2"),
        ("fetch", "12 ms"),
        ("query", "300 ms"),
        ("write", "20 ms"),
        ("commit", "21 ms"),
        ("file indexes", "0 B"),
        ("cached rows", "0 B"),
    ):
        figure = watched.page.locator("#now div").filter(has=watched.page.get_by_text(label, exact=True))
        expect(figure.locator("dd")).to_have_text(value)
    expect(watched.page.locator("#snapshots")).to_contain_text("12 ms, 300 ms, 20 ms")
    assert watched.overflow() == 0
    assert watched.complaints == []


def test_topics_messages_follow_and_are_text(browser: Browser, server: Server, topics: PlayedTopics) -> None:
    watched = Watched(browser)
    page = watched.page
    topics.values = [HOSTILE.encode(), b'{"id": "a"}']
    page.goto(f"{server.url}/room")
    page.get_by_role("link", name="Topics").click()
    row = page.locator(f'[data-topic="{TOPIC}"]')
    expect(row).to_contain_text("raw.charges")
    row.get_by_role("link", name=TOPIC).click()
    messages = page.locator("#messages .message")
    expect(messages).to_have_count(2)
    expect(messages.last.locator("pre")).to_have_text(HOSTILE)
    expect(page.locator("#schemas")).to_contain_text("shop.charges, json")
    topics.values.append(b"z" * 9_000)
    expect(messages).to_have_count(3)
    expect(messages.first).to_contain_text("9,000 bytes")
    expect(page.locator("#partitions td").nth(4)).to_have_text("3")
    page.get_by_label("from offset").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(messages.first).to_contain_text('"id": "a"')
    expect(messages).to_have_count(2)
    assert page.locator("#messages script, #messages img").count() == 0
    assert watched.complaints == []
    topics.away = True
    expect(page.locator("#signal")).to_contain_text("Kafka is not running")
    topics.away = False
    expect(page.locator("#signal")).to_have_text("live")


def test_control_room_updates_and_recovers(browser: Browser, server: Server, shop: ShopLake) -> None:
    watched = Watched(browser)
    node = watched.page.locator('[data-name="raw.charges"]')
    signal_ = watched.page.locator("#signal")
    watched.page.goto(f"{server.url}/room")
    expect(node).to_contain_text("nothing landed yet")
    shop.land(["a", "b"], bad=["no"])
    expect(node).to_contain_text("2 rows")
    expect(node).to_contain_text("1 quarantined")
    assert watched.policy_complaints() == []
    server.stop()
    expect(signal_).to_contain_text("the server does not answer")
    shop.land(["c"])
    server.start()
    expect(signal_).to_have_text("live")
    expect(node).to_contain_text("3 rows")


def test_dashboard_recovers_after_an_outage_of_postgres(
    browser: Browser, server: Server, dsn: str, postgres_home: Settings
) -> None:
    watched = Watched(browser)
    publish(dsn, [("Miami", this_minute(), 80.0)])
    watched.page.goto(f"{server.url}/weather")
    state = watched.page.locator('[data-city="Miami"] .state')
    expect(state).to_have_text("live")
    running = running_postgres(postgres_home)
    assert running
    psutil.Process(running.pid).send_signal(signal.SIGKILL)
    expect(watched.page.locator("#signal")).to_contain_text(re.compile("Postgres (is not running|does not answer)"))
    expect(state).to_contain_text("stale")
    again = start_postgres(postgres_home, detached=False, report=lambda sentence: None)
    publish(again.dsn, [("Miami", this_minute(), 85.0)])
    expect(watched.page.locator('[data-city="Miami"] .now')).to_have_text("85.0 °F")
    expect(watched.page.locator("#signal")).to_have_text("live")


@pytest.mark.parametrize(
    "path", ["/weather", "/room", "/tables/raw.charges", f"/topics/{TOPIC}", "/sql", "/login", "/tables/no.such"]
)
def test_pages_fit_a_phone(browser: Browser, server: Server, shop: ShopLake, topics: PlayedTopics, dsn: str, path: str) -> None:
    shop.land(["a" * 80, HOSTILE], bad=["x" * 200])
    topics.values = [b"x" * 400, b'{"%s": 1}' % (b"n" * 200)]
    publish(dsn, [("W" * 200, this_minute(), 80.0)])
    watched = Watched(browser, size=PHONE)
    watched.page.goto(f"{server.url}{path}")
    watched.page.wait_for_load_state("networkidle")
    if path == "/sql":
        watched.page.fill("#sql", "SELECT * FROM raw.charges")
        watched.page.get_by_role("button", name="Run").click()
        expect(watched.page.locator("#answer td").first).to_be_visible()
    assert watched.overflow() == 0


def test_pages_work_with_the_keyboard_only(browser: Browser, server: Server, shop: ShopLake) -> None:
    shop.land(["a"])
    watched = Watched(browser)
    page = watched.page
    page.goto(f"{server.url}/room")
    expect(page.locator('[data-name="raw.charges"]')).to_contain_text(re.compile(r"\b1 row(?!s)"))
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset?.name") == "raw.charges":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/tables/raw.charges")
    expect(page.locator("h1")).to_have_text("raw.charges")
    page.goto(f"{server.url}/sql")
    expect(page.locator("#sql")).to_be_focused()
    page.keyboard.type("SELECT count(*) AS n FROM raw.charges")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#answer td").first).to_have_text("1")
