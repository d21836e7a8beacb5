"""Where a stream's table, data files and commit log are."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.settings import Settings
from headrace.spec.pipeline import Stream
from headrace.tables.catalog import table_location
from headrace.tables.storage import as_uri


@dataclass(frozen=True)
class Places:
    """URIs. A pipeline can name `output` and `commit_log` itself; a relative path is relative to the working folder."""

    table: str
    output: str
    commit_log: str


def places_of(stream: Stream, settings: Settings) -> Places:
    location = table_location(settings, stream.table)
    folder = settings.folder
    return Places(
        table=location,
        output=as_uri(stream.output, folder=folder) if stream.output else f"{location}/output",
        commit_log=as_uri(stream.commit_log, folder=folder) if stream.commit_log else f"{location}/write-ahead-commit-log",
    )
