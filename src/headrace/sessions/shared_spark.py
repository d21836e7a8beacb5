"""One Spark per process, shared by everything that needs it at the same time: Spark allows no second one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from headrace.iceberg.catalog.properties import secret_names
from headrace.servers.embedded import Report
from headrace.servers.java import find_java_home
from headrace.settings import Settings
from headrace.spark.session import spark_jars, start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _SharedSpark:
    """The running Spark and the number of its users. The first one starts it, and the last one stops it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._spark: SparkSession | None = None

    def acquire(self, settings: Settings, report: Report) -> SparkSession:
        with self._lock:
            if self._spark is None:
                self._spark = _start(settings, report)
            self._users += 1
            return self._spark

    def keep(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._spark is not None:
                spark, self._spark = self._spark, None
                stop_spark(spark)


_SHARED = _SharedSpark()


@contextmanager
def spark_session(settings: Settings, *, report: Report) -> Iterator[SparkSession]:
    """Yield this process's Spark. Only the block that starts it decides its settings, and the last block to end stops it."""
    spark = _SHARED.acquire(settings, report)
    try:
        yield spark
    finally:
        _SHARED.release()


@contextmanager
def keep_spark() -> Iterator[None]:
    """Keep Spark running between the sessions of this block, once the first one has started it."""
    _SHARED.keep()
    try:
        yield
    finally:
        _SHARED.release()


def _start(settings: Settings, report: Report) -> SparkSession:
    started = time.monotonic()
    report("Spark is starting")
    java = find_java_home(os.environ, cache=settings.home / "java")
    spark = start_spark(settings, java_home=java, jars=spark_jars(settings, report=report), conf=secret_names(settings))
    report(f"Spark is ready ({time.monotonic() - started:.1f} s)")
    return spark
