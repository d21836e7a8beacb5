"""The data behind `headrace serve`: figures that are read at most once a second, for any number of clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from threading import Event, Lock, Thread

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import SQLAlchemyError

from headrace.app.figures import Bounds, read_bounds, read_figures
from headrace.app.topics import TopicService, read_all_bounds
from headrace.errors import HeadraceError, UnavailableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.watched import WatchedCatalog, watch_catalog
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.logs import log_trace
from headrace.servers.kafka import find_servers
from headrace.servers.postgres import find_postgres
from headrace.serving.figures import PipelineStatus
from headrace.settings import Settings
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.model.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 1.0
_ENDS_EVERY_SECONDS = 2.0
_ENDS_HOLD_SECONDS = 15.0
_ASKED_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 1.5


def load_pipelines(
    names: Sequence[str], *, environ: Mapping[str, str], folder: Path
) -> tuple[tuple[Pipeline, ...], dict[str, HeadraceError]]:
    """Return these pipelines, or all of `folder`, and the errors of the pipelines that can't be loaded.

    Raises the error of a pipeline that is named in `names`.
    """
    pipelines: list[Pipeline] = []
    broken: dict[str, HeadraceError] = {}
    for name in names or [pipeline.name for pipeline in list_pipelines(folder)]:
        try:
            pipelines.append(load_pipeline(name, environ=environ, folder=folder))
        except HeadraceError as error:
            if names:
                raise
            broken[name] = error
    return tuple(pipelines), broken


class Watch:
    """The pipelines' figures, at most a second old. Thread-safe."""

    def __init__(self, settings: Settings, pipelines: Sequence[Pipeline]) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._lock = Lock()
        self._catalog: Catalog | None = None
        self._figures: tuple[PipelineStatus, ...] = ()
        self._read_at = float("-inf")
        self._ends = TopicEnds(settings, lambda admin: read_bounds(admin, pipelines))
        self._all_ends = TopicEnds(settings, read_all_bounds)
        self.topics = TopicService(settings, pipelines, bounds=self._all_ends.latest, catalog=self.catalog)

    def figures(self) -> tuple[PipelineStatus, ...]:
        """Return the figures. Raises an UnavailableError if the catalog does not answer."""
        with self._lock:
            if time.monotonic() - self._read_at > _EVERY_SECONDS:
                self._read()
            return self._figures

    def catalog(self) -> Catalog:
        """Return the catalog with the tables as of the last read of the figures."""
        self.figures()
        assert self._catalog is not None
        return self._catalog

    def close(self) -> None:
        self._ends.close()
        self._all_ends.close()

    def _read(self) -> None:
        try:
            with translate_outages():
                self._figures = self._read_statuses()
        except (SQLAlchemyError, OSError) as error:
            raise UnavailableError(
                f"the catalog does not answer: {type(error).__name__}", where="catalog", next_step="Check it: headrace doctor"
            ) from error
        self._read_at = time.monotonic()

    def _read_statuses(self) -> tuple[PipelineStatus, ...]:
        if isinstance(self._catalog, WatchedCatalog):
            self._catalog.look()
        else:
            self._catalog = watch_catalog(self._settings)
        catalog, now = self._catalog, datetime.now(timezone.utc)
        bounds, dsn = self._ends.latest(), find_postgres(self._settings)
        return tuple(
            read_figures(self._settings, pipeline, catalog=catalog, bounds=bounds, dsn=dsn, now=now)
            for pipeline in self._pipelines
        )


class TopicEnds:
    """The end offsets of topics, polled in a thread of its own, so that a hanging Kafka does not block clients."""

    def __init__(self, settings: Settings, read: Callable[[AdminClient], Bounds]) -> None:
        self._settings = settings
        self._read = read
        self._newest: tuple[float, Bounds] | None = None
        self._asked_at = float("-inf")
        self._wake, self._answered, self._closed = Event(), Event(), Event()
        self._client: tuple[KafkaServers, AdminClient] | None = None
        self._thread = Thread(target=self._follow, name="topic ends", daemon=True)
        self._thread.start()

    def latest(self) -> Bounds | None:
        """Return the newest bounds, or None if Kafka does not run or has not answered recently.

        The first call after a pause in polling waits up to 1.5 seconds for an answer.
        """
        first = time.monotonic() - self._asked_at > _ASKED_SECONDS
        if first:
            self._answered.clear()
        self._asked_at = time.monotonic()
        self._wake.set()
        if first:
            self._answered.wait(_FIRST_WAIT_SECONDS)
        newest = self._newest
        return newest[1] if newest and time.monotonic() - newest[0] < _ENDS_HOLD_SECONDS else None

    def close(self) -> None:
        self._closed.set()
        self._wake.set()

    def _follow(self) -> None:
        """Poll Kafka every two seconds while `latest` is called. Log an error once, until it changes."""
        last = ""
        while not self._closed.is_set():
            self._wake.clear()  # before the check, or a call of `latest` in between would be missed
            if time.monotonic() - self._asked_at > _ASKED_SECONDS:
                self._wake.wait(_ASKED_SECONDS)
                continue
            try:
                servers = find_servers(self._settings)
                self._newest = (time.monotonic(), self._read(self._admin(servers))) if servers else None
                last = ""
            except Exception as error:  # the next poll may succeed, but only if this thread stays alive
                self._newest = None
                if repr(error) != last:
                    log_trace(_LOG, "the ends of topics can't be read", error, level=logging.WARNING)
                last = repr(error)
            self._answered.set()
            self._closed.wait(_ENDS_EVERY_SECONDS)

    def _admin(self, servers: KafkaServers) -> AdminClient:
        if self._client is None or self._client[0] != servers:
            self._client = (servers, admin_client(servers))
        return self._client[1]
