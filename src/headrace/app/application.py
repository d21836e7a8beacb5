"""Run several pipelines in one application on one Spark, each with its own locks, servers, receiver and publisher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.app.live import LivePipeline, live_pipeline
from headrace.app.receiving import receiving
from headrace.errors import HeadraceError, SpecError
from headrace.kafka.client import KafkaServers
from headrace.servers.embedded import Report
from headrace.sessions.landing import landing_services, open_session
from headrace.sessions.publishing import publishing
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Starting:
    """A pipeline during its start. `stack` holds its running resources; `error` is why it can't be started."""

    settings: Settings
    pipeline: Pipeline
    report: Report
    stack: ExitStack
    servers: KafkaServers | None = None
    live: LivePipeline | None = None
    error: HeadraceError | None = None

    def start_services(self, *, take_over: bool) -> None:
        with self._stopped_by_errors():
            services = landing_services(self.settings, self.pipeline, report=self.report, take_over=take_over)
            self.servers = self.stack.enter_context(services)

    def start_live(self, spark: SparkSession) -> None:
        settings, pipeline, report = self.settings, self.pipeline, self.report
        if self.servers is None:
            return
        with self._stopped_by_errors():
            session = open_session(settings, pipeline, self.servers, spark, report=report)
            self.stack.enter_context(receiving(settings, pipeline, report=report))
            published = publishing(settings, pipeline, report=report, published=lambda done: None)
            publisher = self.stack.enter_context(published)
            self.live = self.stack.enter_context(live_pipeline(session, publisher=publisher, report=report))

    @contextmanager
    def _stopped_by_errors(self) -> Iterator[None]:
        """Record an error of the block and stop everything that runs for the pipeline."""
        try:
            yield
        except HeadraceError as error:
            self.error = error
            self.stack.close()


@contextmanager
def live_pipelines(
    settings: Settings, pipelines: Sequence[Pipeline], *, report: Report, take_over: bool = False
) -> Iterator[tuple[tuple[LivePipeline, ...], tuple[HeadraceError, ...]]]:
    """Yield the started pipelines and the errors of the others; stop everything at the end.

    A pipeline that can't be started leaves nothing running and releases its locks, so the others are safe to run. Raises the
    first error if no pipeline can be started, and a SpecError before starting anything if two pipelines write the same table.
    """
    _check_shared_tables(pipelines)
    with ExitStack() as stack:
        starting = [_Starting(settings, pipeline, report, stack.enter_context(ExitStack())) for pipeline in pipelines]
        for start in starting:
            start.start_services(take_over=take_over)
        _raise_if_none_started(starting)
        spark = stack.enter_context(spark_session(settings, report=report))
        for start in starting:
            start.start_live(spark)
        _raise_if_none_started(starting)
        for start in starting:
            if start.error:
                report(f"{start.pipeline.name} is left out: {start.error}")
        yield tuple(start.live for start in starting if start.live), tuple(start.error for start in starting if start.error)


def _raise_if_none_started(starting: Sequence[_Starting]) -> None:
    errors = [start.error for start in starting if start.error]
    if len(errors) == len(starting):
        raise errors[0]


def _check_shared_tables(pipelines: Sequence[Pipeline]) -> None:
    """Raise a SpecError if two pipelines write the same table."""
    owners: dict[TableName, str] = {}
    for pipeline in pipelines:
        for name in (*(stream.table for stream in pipeline.streams), *(table.table for table in pipeline.tables)):
            if owners.setdefault(name, pipeline.name) != pipeline.name:
                raise SpecError(
                    f"pipelines {owners[name]} and {pipeline.name} both write {name}",
                    where=f"pipeline {pipeline.name}",
                    next_step="Give each pipeline a namespace of its own, or run them one at a time.",
                )
