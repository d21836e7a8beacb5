"""The JSON API of the web pages: the pipelines' pictures, the figures, tables, and queries."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import NotFoundError
from headrace.iceberg.catalog.tables import load_table
from headrace.serving.figures import PipelineStatus, StreamStatus, TableStatus
from headrace.serving.sql.query_service import QueryService
from headrace.serving.web.context import ShownTable, WebContext
from headrace.serving.web.flow import NODE_HEIGHT, NODE_WIDTH
from headrace.serving.web.problems import REFUSALS
from headrace.serving.web.table_facts import describe_table, list_files, read_refused, read_sample

TablePath = Annotated[str, Path(description="a table as namespace.table", max_length=300)]


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str = Field(max_length=20_000, description="one SELECT")


def make_api(context: WebContext, queries: QueryService, *, started: str) -> APIRouter:
    """Return the routes below /api; a new value of `started` tells a page that the server was restarted."""
    router = APIRouter(prefix="/api", responses=REFUSALS)

    @router.get("/flow", summary="The layout of each pipeline's picture")
    def flow() -> dict[str, object]:
        return {
            "started": started,
            "node": {"width": NODE_WIDTH, "height": NODE_HEIGHT},
            "pipelines": [
                {
                    "name": pipeline.name,
                    "about": pipeline.about,
                    "queries": [dataclasses.asdict(query) for query in pipeline.queries],
                    **dataclasses.asdict(context.flows[pipeline.name]),
                }
                for pipeline in context.pipelines
            ],
            "broken": [
                {"name": name, "what": error.what, "where": error.where, "next_step": error.next_step}
                for name, error in context.broken.items()
            ],
        }

    @router.get("/figures", summary="The current figures of every stream and table")
    def figures() -> dict[str, object]:
        return {
            "started": started,
            "services": [
                {"name": service.name, "state": service.state, "address": service.address} for service in context.services()
            ],
            "pipelines": [_pipeline(status) for status in context.figures()],
        }

    @router.get("/tables/{name}", summary="The definition and metadata of a table")
    def table(name: TablePath) -> dict[str, object]:
        shown = _find(context, name)
        return describe_table(shown, load_table(context.catalog(), shown.name))

    @router.get("/tables/{name}/files", summary="The data files of a table")
    def files(name: TablePath) -> dict[str, object]:
        return list_files(load_table(context.catalog(), _find(context, name).name))

    @router.get("/tables/{name}/sample", summary="A few rows of a table")
    def sample(name: TablePath) -> dict[str, object]:
        answer = read_sample(load_table(context.catalog(), _find(context, name).name))
        return {"answer": answer.to_json() if answer else None}

    @router.get("/tables/{name}/refused", summary="The quarantined rows of a table, with their reasons")
    def refused(name: TablePath) -> dict[str, object]:
        answer = read_refused(context.catalog(), _find(context, name))
        return {"answer": answer.to_json() if answer else None}

    @router.post("/query", summary="The answer to one SELECT, limited in rows and time")
    def query(question: Question) -> dict[str, object]:
        return queries.ask(context.catalog(), question.sql).to_json()

    return router


def _find(context: WebContext, name: str) -> ShownTable:
    try:
        return context.tables[name]
    except KeyError:
        raise NotFoundError(f'table not found: "{name}"', next_step="The control room lists all tables.") from None


def _pipeline(status: PipelineStatus) -> dict[str, object]:
    """Return the figures of a pipeline, by the names of the nodes in its picture."""
    nodes: dict[str, dict[str, object]] = {}
    for stream in status.streams:
        nodes[f"topic {stream.topic}"] = {
            "rows": stream.messages,
            "lag": stream.lag,
            "state": "never" if stream.messages is None else stream.state,
        }
        nodes[stream.table] = _stream(stream)
    for table in status.tables:
        nodes[table.table] = _table(table)
    for published in status.published:
        nodes[f"postgres {published.table}"] = {
            "rows": published.rows,
            "freshness_seconds": published.freshness_seconds,
            "commit": published.build_id,
            "state": published.state,
        }
    return {"name": status.name, "running": status.running, "at": status.at.isoformat(), "nodes": nodes}


def _stream(stream: StreamStatus) -> dict[str, object]:
    return {
        "rows": stream.rows,
        "rate": stream.rate,
        "lag": stream.lag,
        "freshness_seconds": stream.freshness_seconds,
        "batch_seconds": stream.batch_seconds,
        "bad_rows": stream.quarantined,
        "quarantined": stream.quarantined,
        "commit": stream.checkpoint_id,
        "state": stream.state,
        "extras": dict(stream.extras),
        "gaps": len(stream.gaps),
    }


def _table(table: TableStatus) -> dict[str, object]:
    return {
        "rows": table.rows,
        "rate": table.rate,
        "behind_seconds": table.behind_seconds,
        "freshness_seconds": table.freshness_seconds,
        "batch_seconds": table.batch_seconds,
        "bad_rows": table.bad_rows,
        "quarantined": table.quarantined,
        "warnings": table.warnings,
        "expectations": table.expectations,
        "failing": len(table.failing),
        "phases": dataclasses.asdict(table.phases) if table.phases else None,
        "rows_in": table.rows_in,
        "rows_out": table.rows_out,
        "index_bytes": table.index_bytes,
        "cached_row_bytes": table.cached_row_bytes,
        "commit": table.build_id,
        "state": table.state,
    }
