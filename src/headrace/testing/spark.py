"""The Spark session that all tests of a process share."""

from __future__ import annotations

import atexit
import logging
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.sessions.shared_spark import spark_session
from headrace.testing.isolated_lake import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)


@cache
def shared_session() -> SparkSession:
    """Return the session. The first call starts Spark, which stops with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-spark-", ignore_cleanup_errors=True)))
    return stack.enter_context(spark_session(settings_of(folder), report=_LOG.info))
