"""Several pipelines in one application on one Spark, each with its own locks, servers, receiver and publisher."""

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
from headrace.sessions.landing import landing_services, open_session, spark_session
from headrace.sessions.publishing import publishing
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Starting:
    """A pipeline while it is started. `stack` holds what runs for it, `error` is why it can't be started."""

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
        """Keep an error of the block, and leave nothing running for the pipeline then."""
        try:
            yield
        except HeadraceError as error:
            self.error = error
            self.stack.close()


@contextmanager
def live_pipelines(
    settings: Settings, pipelines: Sequence[Pipeline], *, report: Report, take_over: bool = False
) -> Iterator[tuple[tuple[LivePipeline, ...], tuple[HeadraceError, ...]]]:
    """Yield the pipelines with everything started, and the errors of those that could not be; stop all of it at the end.

    A pipeline that can't be started leaves nothing running and gives its locks back, so the others are safe to run. If none can
    be started, the first error is raised. Pipelines that write the same table are a SpecError before anything is started.
    """
    _check_apart(pipelines)
    with ExitStack() as stack:
        starting = [_Starting(settings, pipeline, report, stack.enter_context(ExitStack())) for pipeline in pipelines]
        for each in starting:
            each.start_services(take_over=take_over)
        _need_one(starting)
        spark = stack.enter_context(spark_session(settings, report=report))
        for each in starting:
            each.start_live(spark)
        _need_one(starting)
        for each in starting:
            if each.error:
                report(f"{each.pipeline.name} is left out: {each.error}")
        yield tuple(each.live for each in starting if each.live), tuple(each.error for each in starting if each.error)


def _need_one(starting: Sequence[_Starting]) -> None:
    errors = [each.error for each in starting if each.error]
    if len(errors) == len(starting):
        raise errors[0]


def _check_apart(pipelines: Sequence[Pipeline]) -> None:
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
