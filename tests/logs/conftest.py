"""What the tests of logs share: loggers that are as Python has them when a test ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headrace.logs import HEADRACE


@pytest.fixture(autouse=True)
def _plain_loggers() -> Iterator[None]:
    yield
    logger = logging.getLogger(HEADRACE)
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)
