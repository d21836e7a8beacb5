"""The error when Spark's process no longer answers."""

from __future__ import annotations

from pathlib import Path

from headrace.spark.session import explain_end


def test_explain_end_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("ERROR Executor: Exception in task 1.0\njava.lang.OutOfMemoryError: Java heap space\n")
    error = explain_end(tmp_path)
    assert error.what == "Spark ran out of memory and ended"
    assert "HEADRACE_SPARK_DRIVER_MEMORY=4g" in error.next_step


def test_explain_end_names_the_log(tmp_path: Path) -> None:
    assert explain_end(tmp_path).what == "Spark ended unexpectedly"
    assert "headrace logs spark" in explain_end(tmp_path).next_step
