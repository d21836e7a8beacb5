"""Land a pipeline's topics, once or until it is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Event

from headrace.app.display import Display
from headrace.landing.landed import Batch
from headrace.landing.lander import Lander
from headrace.landing.topic_choice import ReplacedTopic
from headrace.servers.embedded import Report
from headrace.sessions.landing import land, landing_session
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline


@dataclass(frozen=True)
class LandingRequest:
    """How to land. With `once`, all messages that are there at the start.

    `accept_gaps` and `replaced_topic` are the decisions about deleted offsets and replaced topics. `take_over` starts although
    another application holds the pipeline. `stop` ends landing after the current batch.
    """

    once: bool = True
    accept_gaps: bool = False
    replaced_topic: ReplacedTopic | None = None
    take_over: bool = False
    stop: Event | None = None


@dataclass(frozen=True)
class StreamTotal:
    """What landed of a stream, by its label."""

    label: str
    rows: int = 0
    quarantined: int = 0


def land_pipeline(
    settings: Settings, pipeline: Pipeline, request: LandingRequest, *, display: Display
) -> tuple[StreamTotal, ...]:
    """Land, and return the total of each stream."""
    totals = {f"{pipeline.name}.{stream.name}": StreamTotal(f"{pipeline.name}.{stream.name}") for stream in pipeline.streams}

    def count(batch: Batch) -> None:
        for part in batch.landed:
            total = totals[part.label]
            totals[part.label] = replace(total, rows=total.rows + part.rows, quarantined=total.quarantined + part.bad)
        board.landed(batch)

    title = pipeline.name if request.once else f"{pipeline.name}, live"
    with (
        landing_session(settings, pipeline, report=display.report, take_over=request.take_over) as session,
        display.live(title) as (board, stop),
    ):
        _apply_decisions(session.lander, request, report=board.report)
        land(
            session,
            once=request.once,
            stop=request.stop or stop,
            landed=count,
            report=board.report,
            idle=board.idle,
            nothing=board.report,
        )
    return tuple(totals.values())


def _apply_decisions(lander: Lander, request: LandingRequest, *, report: Report) -> None:
    choice = request.replaced_topic
    for label in lander.accept_replaced(choice) if choice else ():
        report(f"{label}: new topic accepted ({choice.value if choice else ''}) and recorded")
    for label, (partition, start, end) in lander.accept_gaps() if request.accept_gaps else ():
        report(f"{label}: gap accepted and recorded: partition {partition}, offsets {start} to {end - 1}")
