"""The stack's servers listen on loopback only, require the keys, and expose no secret."""

from __future__ import annotations

import stat
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyarrow import fs

from headrace.errors import UnavailableError
from headrace.http.client import ask
from headrace.iceberg.catalog.tables import open_catalog
from headrace.servers import embedded, object_store, postgres, rest_catalog, spark_cluster, stack
from headrace.servers.process import ServiceState, find_process
from headrace.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={"profile": "stack"}, environ={}, folder=tmp_path)


def quiet(sentence: str) -> None:
    pass


def test_stack_settings_name_the_command_that_starts_the_stack(settings: Settings) -> None:
    with pytest.raises(UnavailableError, match="headrace up --profile stack"):
        stack.stack_settings(settings)


def test_cluster_s_servers_belong_to_the_stack_alone(settings: Settings, tmp_path: Path) -> None:
    local = {server.name for server in stack.list_servers(load_settings(flags={}, environ={}, folder=tmp_path))}
    added = {server.name for server in stack.list_servers(settings)} - local
    assert added == {"s3", "catalog", "spark-master", "spark-worker-1", "spark-worker-2"}


@pytest.mark.long
def test_stack_requires_its_keys(settings: Settings) -> None:
    servers = (postgres.SERVER, object_store.SERVER, rest_catalog.SERVER, spark_cluster.SERVER, *spark_cluster.WORKERS)
    try:
        states = [embedded.start(server, settings, detached=True, report=quiet) for server in servers]
        found_settings = stack.stack_settings(settings)
        catalog = open_catalog(found_settings)
        catalog.create_namespace("stage")
        catalog.create_namespace(("stage", "shop"))
        rows = pa.table({"x": [1, 2, 3]})
        catalog.create_table(("stage", "shop", "t"), schema=rows.schema).append(rows)
        assert open_catalog(found_settings).load_table("stage.shop.t").scan().to_arrow() == rows
        assert ask(f"{found_settings.s3_endpoint}/{object_store.BUCKET}").status == 403
        host = found_settings.s3_endpoint.removeprefix("http://")
        stranger = fs.S3FileSystem(
            access_key=found_settings.s3_access_key_id,
            secret_key="guessed",
            endpoint_override=host,
            scheme="http",
            region="us-east-1",
        )
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            stranger.get_file_info(f"{object_store.BUCKET}/warehouse")
        check_nothing_is_shown(settings, states)
    finally:
        for server in reversed(servers):
            embedded.stop(server, settings, report=quiet)


def check_nothing_is_shown(settings: Settings, states: list[ServiceState]) -> None:
    """Check that no command line or log has a secret, and that no port is reachable from other machines."""
    paths = ("s3/access-key", "s3/secret-key", "spark-master/secret", "postgres/password")
    secrets = [(settings.home / path).read_text(encoding="ascii").strip() for path in paths]
    for path in (*paths, "s3/server.properties", "spark-master/application/spark-defaults.conf"):
        assert stat.S_IMODE((settings.home / path).stat().st_mode) == 0o600, path
    for state in states:
        process = find_process(state)
        assert process is not None, state.name
        public = " ".join(process.cmdline()) + Path(state.log).read_text(encoding="utf-8", errors="replace")
        assert not [secret for secret in secrets if secret in public], state.name
        open_to = {
            connection.laddr.ip for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
        }
        assert open_to <= {"127.0.0.1", "::ffff:127.0.0.1"}, state.name
