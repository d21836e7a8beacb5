"""Prepared queries: Spark analyses and plans them once, and runs them on different rows each time.

A build of few rows spends more time on analysing and planning its query than on the rows, and the query is the same in every
build of a table. So it is written on placeholders, which have a schema and no rows, and `run_here` or `bind` substitutes the
rows. Only this module, `PreparedQuery.java` and `LocalExecution.java` use the private API of Spark behind it. Janino, Spark's
compiler for generated code, compiles the Java files once for each application.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaObject

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Placeholder:
    """A relation without rows: a query that reads `frame` can only be run with `run_here` or `bind`."""

    id: int
    frame: DataFrame


@dataclass(frozen=True)
class _Prepared:
    """A planned query, and the ids of its placeholders, in the order in which Java expects their rows."""

    java: JavaObject
    placeholders: tuple[int, ...]
    is_local: bool


@dataclass
class _Derived:
    """What is derived from a frame on placeholders: other frames by key, and its own query once it is planned."""

    frames: dict[Hashable, DataFrame] = field(default_factory=dict)
    prepared: _Prepared | None = None


_DERIVED: WeakKeyDictionary[DataFrame, _Derived] = WeakKeyDictionary()
"""All frames that only read placeholders. An entry lives as long as the placeholder from which it was first derived."""

_JAVA_CLASSES = ("LocalExecution", "PreparedQuery")
"""In dependency order: a class is compiled after the classes that it uses."""

_COMPILING = Lock()


def make_placeholder(spark: SparkSession, schema: StructType) -> Placeholder:
    """Return a placeholder with this schema, in one partition like the rows of small builds."""
    java = _java(spark.sparkContext)
    relation = java.placeholder(spark._jsparkSession, schema.json())
    frame = _data_frame(spark, relation).coalesce(1)
    _DERIVED[frame] = _Derived()
    return Placeholder(java.idOf(relation), frame)


def derive(frame: DataFrame, what: Hashable, transform: Callable[..., DataFrame], *others: DataFrame) -> DataFrame:
    """Return `transform(frame, *others)`, cached by `what` if all these frames are on placeholders."""
    known = _DERIVED.get(frame)
    if known is None or any(other not in _DERIVED for other in others):
        return transform(frame, *others)
    key = (what, others)
    derived = known.frames.get(key)
    if derived is None:
        derived = known.frames[key] = transform(frame, *others)
        _DERIVED.setdefault(derived, _Derived())
    return derived


def bind(frame: DataFrame, rows_of: Callable[[int], DataFrame]) -> DataFrame:
    """Return a frame with rows instead of its placeholders, whose ids are passed to `rows_of`. Nothing is computed yet."""
    prepared = _prepare(frame)
    if not prepared.placeholders:
        return frame
    bound = _data_frame(frame.sparkSession, prepared.java.bind([rows_of(number)._jdf for number in prepared.placeholders]))
    bound._schema = frame.schema
    return bound


def run_here(frame: DataFrame, rows_of: Callable[[int], DataFrame], path: str) -> bool:
    """Compute a frame in a thread of Spark's process without a job, and write Arrow streams to a file, one for each batch.

    Return False, without doing anything, if the query can only run as a Spark job: use `bind`.
    """
    prepared = _prepare(frame)
    if not prepared.is_local:
        return False
    prepared.java.run([rows_of(number)._jdf for number in prepared.placeholders], path)
    return True


def _prepare(frame: DataFrame) -> _Prepared:
    known = _DERIVED.get(frame, _Derived())
    if known.prepared is None:
        java = _java(frame.sparkSession.sparkContext).prepare(frame._jdf)
        placeholders = tuple(java.placeholders())
        known.prepared = _Prepared(java, placeholders, is_local=bool(placeholders) and java.isLocal())
    return known.prepared


def _data_frame(spark: SparkSession, java: JavaObject) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    return ClassicDataFrame(java, spark)


def _java(context: SparkContext) -> Any:
    """Return the application's instance of the Java class."""
    with _COMPILING:  # a second copy of the class would not know the placeholders of the first
        return _compiled(context)


@lru_cache(maxsize=1)
def _compiled(context: SparkContext) -> Any:
    gateway = context._gateway
    assert gateway is not None
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _JAVA_CLASSES:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook((files("headrace.spark") / f"{name}.java").read_text(encoding="utf-8"))
        loader = compiler.getClassLoader()
    java_class = loader.loadClass("headrace.PreparedQuery")
    no_types, nothing = gateway.new_array(gateway.jvm.java.lang.Class, 0), gateway.new_array(gateway.jvm.java.lang.Object, 0)
    return java_class.getDeclaredConstructor(no_types).newInstance(nothing)
