"""Spark, started so that short Python jobs are short."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
"""Spark generates one method for a whole projection. Of wide tables it is longer than what Java compiles by default, and runs
interpreted: compiling it saves a fifth of the CPU of their large builds."""

_GENERATED_CLASSES = "2000"
"""How many generated classes Spark keeps. Large builds of a pipeline make some hundreds, and Spark keeps 100 by default: each
build would generate its classes again, and Java compile them again."""

_END_SECONDS = 30.0
"""For how long Spark's process may delete its temporary files before it is killed."""

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
    """Return the jars that Spark needs for these settings; what no profile needs is not downloaded.

    A Spark that spark-submit has started has them already.
    """
    if is_submitted():
        return ()
    return tuple(jar for group in spark_groups(settings) for jar in resolve_jars(group, report=report))


def spark_groups(settings: Settings) -> tuple[str, ...]:
    """Return the names of the groups of jars that Spark needs for these settings."""
    aws = ("aws",) if settings.is_on_s3 or settings.catalog_type == "glue" else ()
    return ("spark", *aws, *(("postgres",) if settings.is_catalog_in_postgres else ()))


def is_submitted() -> bool:
    """Return whether spark-submit has started this process, and with it Spark's own, which has its settings then."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start_spark(
    settings: Settings, *, java_home: Path, jars: Sequence[Path], conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session whose noise goes to `logs/spark.log`.

    Two settings make a Python job of two tasks take a tenth of a second and not a third: workers talk to Spark over a Unix
    socket, and they are forked by `headrace.spark.worker_daemon`. All that is set here can be read by anyone who lists
    processes, so no secret is: a catalog's are set on sessions later (`iceberg/catalog/spark.py`), and a task brings its own.
    """
    from pyspark.sql import SparkSession

    settings.logs.mkdir(parents=True, exist_ok=True)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # its errors are told in our words, with their place
    log = settings.logs / "spark.log"
    log_form = settings.home / "spark-log4j2.properties"
    log_form.write_text(_LOGGING.format(path=log), encoding="utf-8")
    if settings.spark_conf_dir is not None:  # what is secret is in a file there, which no list of processes shows
        os.environ["SPARK_CONF_DIR"] = str(settings.spark_conf_dir)
    os.environ["JAVA_HOME"] = str(java_home)
    where = {} if is_submitted() else on_this_machine() if settings.is_local else on_a_cluster(settings)
    if not is_submitted():
        os.environ["PYSPARK_PYTHON"] = where.get("spark.pyspark.python", sys.executable)
    if "spark.driver.bindAddress" in where:
        os.environ["SPARK_LOCAL_IP"] = where["spark.driver.bindAddress"]
    builder = SparkSession.builder.appName("headrace")
    if not is_submitted():
        builder = builder.master(with_retries(settings.spark_master))
    values = {
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
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it would tell Spark where each call stands
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
    for key, value in values.items():
        builder = builder.config(key, value)
    with _stderr_to(log):
        return builder.getOrCreate()


def stop_spark(spark: SparkSession) -> None:
    """Stop Spark, and wait until its process has ended: up to then it deletes its temporary files.

    A process that spark-submit has started ends with it.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # the next session starts a process of its own
    if process.poll() is None:
        gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def explain_end(logs: Path) -> ServiceError:
    """Return the error to raise when Spark's process no longer answers, with the reason if its log tells."""
    log = logs / "spark.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if _OUT_OF_MEMORY in text:
        return ServiceError(
            "Spark has run out of memory and ended",
            where=str(log),
            next_step="Nothing was published. Give it more, such as HEADRACE_SPARK_DRIVER_MEMORY=4g, and start again.",
        )
    return ServiceError(
        "Spark has died", where=str(log), next_step="Read the end of its log with: headrace logs spark   Then start again."
    )


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send what child processes that start in the block print to a file; they keep it for their whole life."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
