"""How Spark starts, and the error when its process no longer answers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.spark.session import explain_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_explain_end_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("ERROR Executor: Exception in task 1.0\njava.lang.OutOfMemoryError: Java heap space\n")
    error = explain_end(tmp_path)
    assert error.what == "Spark ran out of memory and ended"
    assert "HEADRACE_SPARK_DRIVER_MEMORY=4g" in error.next_step


def test_explain_end_names_the_log(tmp_path: Path) -> None:
    assert explain_end(tmp_path).what == "Spark ended unexpectedly"
    assert "headrace logs spark" in explain_end(tmp_path).next_step


@pytest.mark.spark
def test_start_spark_keeps_the_handler_of_interrupts(spark: SparkSession) -> None:
    assert "pyspark" not in str(getattr(signal.getsignal(signal.SIGINT), "__module__", None))
