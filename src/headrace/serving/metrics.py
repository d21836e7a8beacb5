"""Export the figures as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.serving.figures import PipelineStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("pipeline", "stream", "table")
ABOUT = {
    "headrace_rows": "Rows in the table",
    "headrace_rows_per_second": "Rows added or changed per second, averaged over the last minute",
    "headrace_lag_messages": "Messages in the topic that have not landed yet",
    "headrace_behind_seconds": "Seconds for which an upstream change has not been in the table",
    "headrace_freshness_seconds": "Seconds since the last commit or build",
    "headrace_batch_seconds": "Duration of the last checkpoint or build in seconds",
    "headrace_bad_rows": "For older dashboards: quarantined rows of a stream, or failed expectations in a table's last build",
    "headrace_quarantined_rows": "Rows in the quarantine",
    "headrace_warnings": "Failed expectations of rows that a table's last build kept",
    "headrace_checkpoint": "Number of the last checkpoint or build",
    "headrace_build_rows_in": "Rows that the query of a table's last build computed from the changes",
    "headrace_build_rows_out": "Rows that a table's last build added or changed",
    "headrace_index_bytes": "Bytes of a table's file indexes on this machine's disk",
    "headrace_cached_row_bytes": "Bytes of a table's cached rows on this machine's disk",
}
"""The help of each metric of streams (label `stream` is set) and layer tables (label `stream` is empty)."""
RUNNING = "headrace_pipeline_running"
PHASE = "headrace_build_phase_seconds"
PHASE_LABELS = ("pipeline", "table", "phase")
PHASE_ABOUT = (
    "Seconds of a table's last build by phase: fetch (reading through file indexes, planning scans), query (Spark; large"
    " builds also write their files), write (staging files), commit (of the previous build). Builds of 0.1 recorded none"
)


class _Figures(Collector):
    def __init__(self, read: Callable[[], Sequence[PipelineStatus]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families = {name: GaugeMetricFamily(name, about, labels=LABELS) for name, about in ABOUT.items()}
        phases = GaugeMetricFamily(PHASE, PHASE_ABOUT, labels=PHASE_LABELS)
        running = GaugeMetricFamily(RUNNING, "1 while an application lands the pipeline, else 0", labels=LABELS[:1])
        for pipeline in self._read():
            running.add_metric([pipeline.name], float(pipeline.running))
            for labels, values in _values(pipeline):
                for name, value in values.items():
                    if value is not None:
                        families[name].add_metric(labels, float(value))
            for table in pipeline.tables:
                for name, seconds in (asdict(table.phases) if table.phases else {}).items():
                    if seconds is not None:
                        phases.add_metric([pipeline.name, table.table, name], float(seconds))
        yield running
        yield from families.values()
        yield phases


def _values(pipeline: PipelineStatus) -> Iterable[tuple[list[str], dict[str, float | None]]]:
    for stream in pipeline.streams:
        yield (
            [pipeline.name, stream.label.removeprefix(f"{pipeline.name}."), stream.table],
            {
                "headrace_rows": stream.rows,
                "headrace_rows_per_second": stream.rate,
                "headrace_lag_messages": stream.lag,
                "headrace_freshness_seconds": stream.freshness_seconds,
                "headrace_batch_seconds": stream.batch_seconds,
                "headrace_bad_rows": stream.quarantined,
                "headrace_quarantined_rows": stream.quarantined,
                "headrace_checkpoint": stream.checkpoint_id,
            },
        )
    for table in pipeline.tables:
        yield (
            [pipeline.name, "", table.table],
            {
                "headrace_rows": table.rows,
                "headrace_rows_per_second": table.rate,
                "headrace_behind_seconds": table.behind_seconds,
                "headrace_freshness_seconds": table.freshness_seconds,
                "headrace_batch_seconds": table.batch_seconds,
                "headrace_bad_rows": table.bad_rows,
                "headrace_quarantined_rows": table.quarantined,
                "headrace_warnings": table.warnings,
                "headrace_checkpoint": table.build_id,
                "headrace_build_rows_in": table.rows_in,
                "headrace_build_rows_out": table.rows_out,
                "headrace_index_bytes": table.index_bytes,
                "headrace_cached_row_bytes": table.cached_row_bytes,
            },
        )


def write_metrics(read: Callable[[], Sequence[PipelineStatus]]) -> bytes:
    """Return the figures in Prometheus' text format, without unknown values."""
    registry = CollectorRegistry()
    registry.register(_Figures(read))
    return generate_latest(registry)
