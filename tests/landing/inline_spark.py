"""A stand-in for Spark in landing: runs tasks one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class InlineSpark:
    """Stands in for a SparkContext with two cores, and for its session."""

    defaultParallelism = 2  # noqa: N815, as Spark calls it

    @property
    def sparkContext(self) -> InlineSpark:  # noqa: N802, as Spark calls it
        return self

    def parallelize(self, plans: Iterable[Any], parts: int) -> _Rows:
        return _Rows(list(plans))


class _Rows:
    def __init__(self, plans: list[Any]) -> None:
        self._plans = plans

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> _Rows:  # noqa: N802, as Spark calls it
        return _Rows([result for plan in self._plans for result in work(iter([plan]))])

    def collect(self) -> list[Any]:
        return self._plans
