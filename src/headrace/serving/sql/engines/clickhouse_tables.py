"""What ClickHouse reads a table of the lake from, on this machine's disk or in an object store, as its SQL has it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from headrace.iceberg.files.storage import DISK, Storage, local_path
from headrace.iceberg.rows.duck import quote_text


def table_engine(metadata: str, storage: Storage) -> str:
    """Return the engine of a table, as it stands after ENGINE: the metadata file is the one that the catalog names, for by
    itself ClickHouse would look for the newest.

    It has the object store's keys in it. Without keys ClickHouse looks for them in the environment.
    """
    folder, _, file = metadata.rpartition("/metadata/")
    path = local_path(folder)
    if path is None:
        options = dict(storage.options)
        names = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token") if "s3.access-key-id" in options else ()
        name, place = "IcebergS3", (_address(folder, options), *(options.get(each, "") for each in names))
    else:
        name, place = "IcebergLocal", (str(path),)
    told = ", ".join(map(quote_text, (*place, "Parquet")))
    return f"{name}({told}) SETTINGS iceberg_metadata_file_path = {quote_text(f'metadata/{file}')}"


def store_settings(storage: Storage) -> dict[str, str]:
    """Return ClickHouse's settings for an object store: where the bucket is named, and to give up soon, which by itself
    it does after minutes."""
    if storage == DISK:
        return {}
    style = "virtual_hosted" if _is_virtual(dict(storage.options)) else "path"
    return {"s3_uri_style": quote_text(style), "s3_retry_attempts": "3"}


def _address(folder: str, options: Mapping[str, str]) -> str:
    """Return where a folder of a bucket answers: the bucket is in the path, or before the host's name."""
    parts = urlsplit(folder)
    endpoint = urlsplit(options.get("s3.endpoint") or f"https://s3.{options['s3.region']}.amazonaws.com")
    base = endpoint.path.rstrip("/")
    if _is_virtual(options):
        return urlunsplit((endpoint.scheme, f"{parts.netloc}.{endpoint.netloc}", base + parts.path, "", ""))
    return urlunsplit((endpoint.scheme, endpoint.netloc, f"{base}/{parts.netloc}{parts.path}", "", ""))


def _is_virtual(options: Mapping[str, str]) -> bool:
    return options.get("s3.force-virtual-addressing") == "true"
