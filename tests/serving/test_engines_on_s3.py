"""The engines' settings for an object store, and their errors during its outage. `make stack` tests a real one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from headrace.errors import UnavailableError
from headrace.iceberg.catalog.properties import catalog_properties
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.files.storage import DISK, Storage
from headrace.servers.ports import find_free_port
from headrace.serving.sql.engines.clickhouse_tables import store_settings, table_engine
from headrace.serving.sql.engines.names import Engine
from headrace.settings import load_settings
from tests.support.engine_rows import IN_PROCESS

FILE = "00001-8e722d9f.metadata.json"
METADATA = f"s3://lake/tables/raw/it's/metadata/{FILE}"
KEYS = {"AWS_ACCESS_KEY_ID": "key-of-mine", "AWS_SECRET_ACCESS_KEY": "secret-of-mine"}
OWN = {"HEADRACE_S3_ENDPOINT": "http://store.example:9000/"}


def storage_of(folder: Path, **environ: str) -> Storage:
    settings = load_settings(flags={}, environ={"HEADRACE_WAREHOUSE": "s3://lake/tables", **environ}, folder=folder)
    return Storage.of(catalog_properties(settings))


@pytest.mark.parametrize(
    ("environ", "place", "style"),
    [
        (OWN | KEYS, "'http://store.example:9000/lake/tables/raw/it''s', 'key-of-mine', 'secret-of-mine', ''", "'path'"),
        (
            OWN | KEYS | {"HEADRACE_S3_PATH_STYLE": "false", "AWS_SESSION_TOKEN": "an-hour"},
            "'http://lake.store.example:9000/tables/raw/it''s', 'key-of-mine', 'secret-of-mine', 'an-hour'",
            "'virtual_hosted'",
        ),
        ({"AWS_REGION": "eu-west-1"}, "'https://lake.s3.eu-west-1.amazonaws.com/tables/raw/it''s'", "'virtual_hosted'"),
        ({"HEADRACE_S3_PATH_STYLE": "true"}, "'https://s3.us-east-1.amazonaws.com/lake/tables/raw/it''s'", "'path'"),
    ],
    ids=["path", "virtual", "amazon", "amazon-path"],
)
def test_clickhouse_table_engine_on_s3(tmp_path: Path, environ: dict[str, str], place: str, style: str) -> None:
    storage = storage_of(tmp_path, **environ)
    wanted = f"IcebergS3({place}, 'Parquet') SETTINGS iceberg_metadata_file_path = 'metadata/{FILE}'"
    assert table_engine(METADATA, storage) == wanted
    assert store_settings(storage)["s3_uri_style"] == style


def test_clickhouse_table_engine_on_disk() -> None:
    wanted = f"IcebergLocal('/lake/raw/t', 'Parquet') SETTINGS iceberg_metadata_file_path = 'metadata/{FILE}'"
    assert table_engine(f"file:///lake/raw/t/metadata/{FILE}", DISK) == wanted
    assert store_settings(DISK) == {}


def test_keys_are_not_repeated(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, **OWN, **KEYS, AWS_SESSION_TOKEN="an-hour")
    message = "AT IcebergS3('http://store.example:9000/lake', 'key-of-mine', 'secret-of-mine', 'an-hour')"
    assert storage.without_secrets(message) == "AT IcebergS3('http://store.example:9000/lake', '***', '***', '***')"


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """Return a catalog whose only table is in an object store that does not answer."""
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    catalog.create_namespace("raw")
    rows = pa.table({"n": [1]})
    table = catalog.create_table("raw.orders", schema=rows.schema)
    table.append(rows)
    away = storage_of(tmp_path, **KEYS, HEADRACE_S3_ENDPOINT=f"http://127.0.0.1:{find_free_port()}")
    catalog.properties |= dict(away.options)
    moved = table.metadata.model_dump_json().replace(table.location(), "s3://lake/raw/orders")
    location = table.metadata_location.replace(table.location(), "s3://lake/raw/orders")
    files = load_file_io(catalog.properties, location)
    there = Table(table.name(), TableMetadataUtil.parse_raw(moved), location, files, catalog)
    monkeypatch.setattr(catalog, "load_table", lambda name: there)
    return catalog


@pytest.mark.parametrize("engine", [Engine.polars, Engine.clickhouse, Engine.pyiceberg])
def test_outage_of_the_object_store_is_reported_soon(lost: Catalog, engine: Engine) -> None:
    with pytest.raises(UnavailableError, match=r"warehouse: .* can't read the warehouse: ") as error:
        IN_PROCESS[engine](lost, "SELECT n FROM raw.orders")
    assert "-of-mine" not in str(error.value)
