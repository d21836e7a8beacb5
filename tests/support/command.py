"""Commands in this process: what they do and say is the same as in a process of their own, which takes seconds to start."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli import main
from tests.support.application import OURS
from tests.support.spark import use_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_command(
    *arguments: str, environ: Mapping[str, str], folder: Path, spark: SparkSession | None = None
) -> tuple[int, str]:
    """Run `headrace` in a folder and return its exit code and its output.

    As in a process that tests start, its environment is the machine's, without Headrace's own variables, and `environ`; and
    nobody answers what it asks. A command that needs Spark uses `spark`, and neither starts nor stops one.
    """
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        patch.chdir(folder)
        for name in [name for name in os.environ if OURS.match(name)]:
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["headrace", *arguments])
        patch.setattr(sys, "stdin", io.StringIO())
        if spark is not None:
            use_spark(patch, spark)
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), output.getvalue()
    raise AssertionError("a command ends with an exit code")
