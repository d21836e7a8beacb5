"""Queries run in separate worker processes, whose failures do not affect other queries."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from headrace.errors import QueryError, UnavailableError
from headrace.iceberg.files.storage import local_path
from headrace.serving.sql.query_service import QueryService
from headrace.serving.sql.query_worker import WorkerLimits
from tests.serving.shop_lake import ShopLake
from tests.support.waiting import wait_until

MB = 1024**2
LONG = 120.0  # seconds that no query of these tests takes, however busy the machine is
LIMITS = WorkerLimits(memory_bytes=200 * MB, data_bytes=900 * MB, spill_bytes=50 * MB, answer_bytes=1 * MB)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopLake]:
    lake = ShopLake(tmp_path_factory.mktemp("pool"))
    lake.land(["a", "b"])
    yield lake
    lake.watch.close()


@pytest.fixture(scope="module")
def spills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("spills")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="module")
def queries(spills: Path) -> Iterator[QueryService]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HEADRACE_TOKEN", "a token that no worker needs")
        patched.setenv("STRIPE_WEBHOOK_SECRET", "a secret that no worker needs")
        queries = QueryService(limits=LIMITS)
        yield queries
        queries.close()
    assert list(spills.iterdir()) == [], "what workers write is removed with them"


def workers() -> list[psutil.Process]:
    results = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            if "headrace.serving.sql.query_worker" in child.cmdline():
                results.append(child)
    return results


def memory_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def test_memory_is_bounded_and_the_reason_is_given(lake: ShopLake, queries: QueryService) -> None:
    peak = 0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            queries.ask, lake.catalog, "SELECT list(repeat('ab', 5000000)) FROM range(100000)", most_seconds=LONG
        )
        while not asked.done():
            peak = max([peak, *map(memory_of, workers())])
            time.sleep(0.02)
    with pytest.raises(QueryError, match="exceeds its memory limit"):
        asked.result()
    assert 0 < peak < LIMITS.data_bytes + 200 * MB, "the libraries themselves are mapped, too"
    assert queries.ask(lake.catalog, "SELECT count(*) FROM raw.charges").rows == ((2,),)


def test_spill_is_bounded_and_removed(lake: ShopLake, queries: QueryService, spills: Path) -> None:
    sql = "SELECT a.range, b.range, repeat('x', 200) AS t FROM range(3000) a, range(3000) b ORDER BY t, b.range DESC, a.range"
    before = set(Path.cwd().iterdir())
    with pytest.raises(QueryError, match="exceeds its memory limit"):
        queries.ask(lake.catalog, sql, most_seconds=LONG)
    assert set(Path.cwd().iterdir()) == before
    assert sum(path.stat().st_size for path in spills.rglob("*") if path.is_file()) < MB


def test_result_that_is_too_long_is_refused(lake: ShopLake, queries: QueryService) -> None:
    with pytest.raises(QueryError, match="the result has more than 1 MB"):
        queries.ask(lake.catalog, "SELECT repeat('x', 30000) FROM range(100)")


def test_deep_nesting_is_a_query_error(lake: ShopLake, queries: QueryService) -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        queries.ask(lake.catalog, "SELECT " + "(" * 9_000 + "1" + ")" * 9_000)


def test_workers_have_no_secrets_of_the_server(lake: ShopLake, queries: QueryService) -> None:
    queries.ask(lake.catalog, "SELECT 1")
    environs = [worker.environ() for worker in workers()]
    assert environs
    assert all("HEADRACE_TOKEN" not in environ and "STRIPE_WEBHOOK_SECRET" not in environ for environ in environs)


def test_hanging_file_times_out_while_others_are_answered(tmp_path: Path, lake: ShopLake, queries: QueryService) -> None:
    hung = ShopLake(tmp_path)
    hung.land(["a"])
    replace_data_file(hung, os.mkfifo)
    with pytest.raises(QueryError, match="ran for longer than 1 seconds"):
        queries.ask(hung.catalog, "SELECT id FROM raw.charges", most_seconds=1.0)
    own = QueryService(limits=LIMITS)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(own.ask, hung.catalog, "SELECT id FROM raw.charges", most_seconds=LONG)
        wait_until(lambda: own._pool._busy, what="the query to run")
        assert own.ask(lake.catalog, "SELECT count(*) FROM raw.charges", most_seconds=LONG).rows == ((2,),)
        assert not asked.done()
        own.close()
        with pytest.raises(QueryError, match="the server is stopping"):
            asked.result(LONG)
    hung.watch.close()


def test_damaged_metadata_ends_at_most_its_own_process(tmp_path: Path, lake: ShopLake, queries: QueryService) -> None:
    damaged = ShopLake(tmp_path)
    damaged.land(["a"])
    table = damaged.catalog.load_table("raw.charges")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = local_path(snapshot.manifests(table.io)[0].manifest_path)
    assert manifest is not None
    whole = manifest.read_bytes()
    refused = 0
    for length in (len(whole) * 3 // 4, len(whole) // 2, len(whole) // 4, 4):
        manifest.write_bytes(whole[:length])
        try:
            queries.ask(damaged.catalog, "SELECT id FROM raw.charges")
        except QueryError:
            refused += 1
    assert refused
    assert queries.ask(lake.catalog, "SELECT count(*) FROM raw.charges").rows == ((2,),)
    damaged.watch.close()


def test_idle_worker_that_is_killed_is_replaced(lake: ShopLake, queries: QueryService) -> None:
    queries.ask(lake.catalog, "SELECT 1")
    for worker in workers():
        worker.kill()
        worker.wait()
    assert queries.ask(lake.catalog, "SELECT 1 AS one").rows == ((1,),)


def test_without_a_temporary_folder_the_reason_is_given(
    lake: ShopLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = QueryService(limits=LIMITS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(UnavailableError, match="the query worker can't be started: No such file or directory"):
        own.ask(lake.catalog, "SELECT 1")


def test_closing_ends_a_query_that_runs(lake: ShopLake) -> None:
    own = QueryService(limits=LIMITS)
    own.ask(lake.catalog, "SELECT 1")
    sql = "SELECT count(*) FROM range(9000000) a, range(9000000) b WHERE a.range ^ b.range = 3"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(own.ask, lake.catalog, sql, most_seconds=10 * LONG)
        wait_until(lambda: own._pool._busy, what="the query to run")
        own.close()
        with pytest.raises(QueryError, match="the server is stopping"):
            asked.result(LONG)


def replace_data_file(lake: ShopLake, make: Callable[[Path], None]) -> None:
    task = next(iter(lake.catalog.load_table("raw.charges").scan().plan_files()))
    path = local_path(task.file.file_path)
    assert path is not None
    path.unlink()
    make(path)
