"""Read messages from Kafka again with the current schema and decoder, in landing's own tasks."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog

from headrace.iceberg.files.storage import Storage
from headrace.landing.batch import Range, StreamJob, StreamResult, TaskPlan
from headrace.landing.plan import pack_ranges
from headrace.landing.task import run_tasks
from headrace.landing.task_errors import error_of, explain_failure
from headrace.logs import LANDING, log_failure
from headrace.operations.replay.target import Staged, Target, grow_target, read_staged
from headrace.settings import Settings

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kafka:
    """The connection settings of Kafka and the schema registry."""

    consumer: Mapping[str, str]
    registry_url: str = ""


def reread(
    spark: SparkContext, catalog: Catalog, settings: Settings, target: Target, ranges: Sequence[Range], *, kafka: Kafka
) -> tuple[Target, Staged]:
    """Read the ranges again. Return the target, whose table may have new columns, and the result.

    Files are written to the scratch folder; no table refers to them.
    """
    while True:
        results = _run(spark, settings, target, ranges, kafka)
        growth = tuple(dict.fromkeys(columns for result in results for columns in result.growth))
        if not growth:
            break
        target = grow_target(catalog, target, growth)
    good = [file for result in results for file in result.files]
    bad = [file for result in results for file in result.quarantine_files]
    return target, read_staged(target, good=good, bad=bad)


def _run(spark: SparkContext, settings: Settings, target: Target, ranges: Sequence[Range], kafka: Kafka) -> list[StreamResult]:
    batch, job = str(uuid.uuid4()), _job(target, kafka)
    plans = [
        TaskPlan(
            subtask=subtask,
            batch=batch,
            jobs=(job,),
            ranges=task,
            consumer=tuple(sorted(kafka.consumer.items())),
            driver_pid=os.getpid(),
            storage=Storage.of(target.table.io.properties),
        )
        for subtask, task in enumerate(pack_ranges(ranges, cores=spark.defaultParallelism))
    ]
    if not plans:
        return []
    try:
        results: list[StreamResult] = spark.parallelize(plans, len(plans)).mapPartitions(run_tasks).collect()
    except Py4JError as error:
        raise explain_failure(error, logs=settings.logs) from error
    for result in results:
        if result.failure:
            log_failure(_LOG, settings, LANDING, f"{target.label}: a replay failed", result.failure.trace)
            raise error_of(result.failure, label=target.label)
    return results


def _job(target: Target, kafka: Kafka) -> StreamJob:
    return StreamJob(
        stream=target.stream,
        label=target.label,
        owner=str(target.table.metadata.table_uuid),
        checkpoint_id=target.ledger.checkpoint_id,
        schema_json=target.table.schema().model_dump_json(),
        spec_json=target.table.spec().model_dump_json(),
        quarantine_schema_json=target.quarantine.schema().model_dump_json(),
        output=f"{target.scratch}/rows",
        commit_log=f"{target.scratch}/log",
        quarantine_output=f"{target.scratch}/refused",
        registry_url=kafka.registry_url if target.stream.may_need_registry else "",
    )
