"""The SQL with which ClickHouse reads a table of the lake from local disk or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from headrace.iceberg.files.storage import DISK, Storage, local_path
from headrace.iceberg.rows.duck import quote_text


def table_engine(metadata: str, storage: Storage) -> str:
    """Return the ENGINE clause of a table. It names the catalog's metadata file, because ClickHouse would use the newest one.

    It contains the object store's keys. Without keys, ClickHouse looks for them in the environment.
    """
    folder, _, file = metadata.rpartition("/metadata/")
    path = local_path(folder)
    if path is None:
        options = dict(storage.options)
        names = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token") if "s3.access-key-id" in options else ()
        name, place = "IcebergS3", (_address(folder, options), *(options.get(option, "") for option in names))
    else:
        name, place = "IcebergLocal", (str(path),)
    arguments = ", ".join(map(quote_text, (*place, "Parquet")))
    return f"{name}({arguments}) SETTINGS iceberg_metadata_file_path = {quote_text(f'metadata/{file}')}"


def store_settings(storage: Storage) -> dict[str, str]:
    """Return ClickHouse's settings for an object store: the URL style, and few retries, because the default takes minutes."""
    if storage == DISK:
        return {}
    style = "virtual_hosted" if _is_virtual(dict(storage.options)) else "path"
    return {"s3_uri_style": quote_text(style), "s3_retry_attempts": "3"}


def _address(folder: str, options: Mapping[str, str]) -> str:
    """Return the URL of a folder in a bucket, with the bucket in the path or in the host name."""
    parts = urlsplit(folder)
    endpoint = urlsplit(options.get("s3.endpoint") or f"https://s3.{options['s3.region']}.amazonaws.com")
    base = endpoint.path.rstrip("/")
    if _is_virtual(options):
        return urlunsplit((endpoint.scheme, f"{parts.netloc}.{endpoint.netloc}", base + parts.path, "", ""))
    return urlunsplit((endpoint.scheme, endpoint.netloc, f"{base}/{parts.netloc}{parts.path}", "", ""))


def _is_virtual(options: Mapping[str, str]) -> bool:
    return options.get("s3.force-virtual-addressing") == "true"
