"""The data sources of the web application, which the command that starts it provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError
from headrace.servers.status import ServiceStatus
from headrace.serving.figures import PipelineStatus
from headrace.serving.web.flow import Flow, draw_flow, ends_of
from headrace.serving.web.topics import Topics
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.sql.lineage import Lineage, TableLineage, trace_lineage


@dataclass(frozen=True)
class ShownTable:
    """A table that a pipeline lands (`stream`) or builds (`layer`), and its lineage."""

    pipeline: Pipeline
    lineage: Lineage
    traced: TableLineage
    stream: Stream | None
    layer: LayerTable | None

    @property
    def name(self) -> TableName:
        return self.traced.table

    @property
    def refused_as(self) -> str:
        """The name of this table in the quarantine."""
        return f"{self.pipeline.name}.{self.stream.name}" if self.stream else str(self.name)


@dataclass(frozen=True)
class WebContext:
    """The pipelines, the errors of pipelines that can't be loaded, and functions that read the current state.

    `catalog` returns the catalog as of its last refresh, and `topics` reads Kafka. `postgres` returns the connection string of
    the Postgres of published tables, or None if it does not run.
    """

    pipelines: tuple[Pipeline, ...]
    figures: Callable[[], tuple[PipelineStatus, ...]]
    catalog: Callable[[], Catalog]
    topics: Topics
    services: Callable[[], tuple[ServiceStatus, ...]] = tuple
    postgres: Callable[[], str | None] = lambda: None
    broken: Mapping[str, HeadraceError] = field(default_factory=dict)

    @cached_property
    def lineages(self) -> Mapping[str, Lineage]:
        return {pipeline.name: trace_lineage(pipeline) for pipeline in self.pipelines}

    @cached_property
    def flows(self) -> Mapping[str, Flow]:
        return {pipeline.name: draw_flow(self.lineages[pipeline.name], ends=ends_of(pipeline)) for pipeline in self.pipelines}

    @cached_property
    def tables(self) -> Mapping[str, ShownTable]:
        """Every table of every pipeline, by its name."""
        tables = {}
        for pipeline in self.pipelines:
            streams = {stream.table: stream for stream in pipeline.streams}
            layers = {table.table: table for table in pipeline.tables}
            lineage = self.lineages[pipeline.name]
            for traced in lineage.tables:
                name = traced.table
                tables[str(name)] = ShownTable(pipeline, lineage, traced, streams.get(name), layers.get(name))
        return tables
