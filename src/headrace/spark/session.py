"""Start and stop Spark, configured for short Python jobs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ServiceError
from headrace.servers.embedded import Report
from headrace.servers.jars import resolve_jars
from headrace.settings import REDACTED, SENSITIVE, Settings
from headrace.spark.master import on_a_cluster, on_this_machine, with_retries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "-XX:-UsePerfData -XX:-DontCompileHugeMethods"
"""Spark generates one method for a whole projection. For wide tables it exceeds Java's default limit for compilation and would
be interpreted: compiling it saves a fifth of the CPU of large builds."""

_GENERATED_CLASSES = "2000"
"""How many generated classes Spark caches. Large builds of a pipeline need some hundreds, and with Spark's default of 100 each
build would generate and compile its classes again."""

_END_SECONDS = 30.0
"""How long Spark's process may take to delete its temporary files before it is killed."""

_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %p %c{{1}}: %m%n%ex
"""


def spark_jars(settings: Settings, *, report: Report) -> tuple[Path, ...]:
    """Return the jars that Spark needs for these settings, and download only these.

    A process that spark-submit started has them already.
    """
    if is_submitted():
        return ()
    return tuple(jar for group in spark_groups(settings) for jar in resolve_jars(group, report=report))


def spark_groups(settings: Settings) -> tuple[str, ...]:
    """Return the names of the jar groups that Spark needs for these settings."""
    aws = ("aws",) if settings.is_on_s3 or settings.catalog_type == "glue" else ()
    return ("spark", *aws, *(("postgres",) if settings.is_catalog_in_postgres else ()))


def is_submitted() -> bool:
    """Return whether spark-submit started this process and Spark's, which then has its settings already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start_spark(
    settings: Settings, *, java_home: Path, jars: Sequence[Path], conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark and return a session that logs to `logs/spark.log`.

    Two settings reduce a Python job of two tasks from a third to a tenth of a second: workers use a Unix socket, and they are
    forked by `headrace.spark.worker_daemon`. All settings here are visible in the list of processes, so they contain no
    secrets: the catalog's secrets are set on sessions later (`iceberg/catalog/spark.py`), and tasks carry their own.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from headrace.spark.java_objects import release_java_objects_at_once

    release_java_objects_at_once()
    settings.logs.mkdir(parents=True, exist_ok=True)
    logging.getLogger("SQLQueryContextLogger").setLevel(
        logging.CRITICAL
    )  # Headrace reports these errors with their file and line
    log = settings.logs / "spark.log"
    log_form = settings.home / "spark-log4j2.properties"
    log_form.write_text(_LOGGING.format(path=log), encoding="utf-8")
    if settings.spark_conf_dir is not None:  # secrets are in a file there, which the list of processes does not show
        os.environ["SPARK_CONF_DIR"] = str(settings.spark_conf_dir)
    os.environ["JAVA_HOME"] = str(java_home)
    where = {} if is_submitted() else on_this_machine() if settings.is_local else on_a_cluster(settings)
    if not is_submitted():
        os.environ["PYSPARK_PYTHON"] = where.get("spark.pyspark.python", sys.executable)
    if "spark.driver.bindAddress" in where:
        os.environ["SPARK_LOCAL_IP"] = where["spark.driver.bindAddress"]
    values = {
        "spark.app.name": "headrace",
        **({} if is_submitted() else {"spark.master": with_retries(settings.spark_master)}),
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_form.as_uri()} -XX:+UseSerialGC {_JAVA_OPTIONS}",
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.executorEnv.POLARS_MAX_THREADS": "1",  # a task has one core
        **({"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}),
        "spark.local.dir": str(settings.home / "spark"),
        "spark.locality.wait": "0",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": f"{SENSITIVE}|url|uri",
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "headrace.spark.worker_daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it would send the call site of each call to Spark
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.sql.codegen.cache.maxEntries": _GENERATED_CLASSES,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(settings.home / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **where,
        **settings.spark_conf,
        **(conf or {}),
    }
    logging.getLogger().addFilter(_is_not_an_interrupt)
    with _stderr_to(log), ThreadPoolExecutor(max_workers=1, thread_name_prefix="start-spark") as pool:
        # In the main thread PySpark would replace the handler of Ctrl-C by one that calls Java from within a call to Java.
        pool.submit(SparkContext.getOrCreate, SparkConf().setAll([*values.items()])).result()
        return SparkSession.builder.config(map=dict(values)).getOrCreate()


def stop_spark(spark: SparkSession) -> None:
    """Stop Spark, and wait until its process has deleted its temporary files and ended.

    With spark-submit, Spark's process ends together with this one.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # the next session starts a new process
    if process.poll() is None:
        gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def explain_end(logs: Path) -> ServiceError:
    """Return the error for a Spark process that no longer answers, with the reason from its log if there is one."""
    log = logs / "spark.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if _OUT_OF_MEMORY in text:
        return ServiceError(
            "Spark ran out of memory and ended",
            where=str(log),
            next_step="Nothing was published. Set more memory, such as HEADRACE_SPARK_DRIVER_MEMORY=4g, and start again.",
        )
    return ServiceError(
        "Spark ended unexpectedly",
        where=str(log),
        next_step="Read the end of its log with: headrace logs spark   Then start again.",
    )


def _is_not_an_interrupt(record: logging.LogRecord) -> bool:
    """Return False for the traceback that py4j logs when Ctrl-C interrupts a call to Java."""
    return "KeyboardInterrupt" not in str(record.msg)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr to a file for child processes that start in the block, for their whole lifetime."""
    sys.stderr.flush()
    original = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
