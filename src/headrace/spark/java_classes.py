"""Access Java classes of Spark and Iceberg by their full names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import GatewayClient, JavaMember
from py4j.java_gateway import JavaClass as Constructor
from py4j.protocol import STATIC_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class JavaClass:
    """A class in Spark's JVM: its attributes are static methods, and calling it creates an instance.

    `spark._jvm.org.apache…` asks Java at every dot whether a class of that name exists, which searches all of Spark's jars, and
    then whether the class has the static method. For that py4j checks the first method of the name, in an order that Java does
    not define. `SparkTableCache` has a static and a non-static `get`, and in some JVMs the non-static one comes first: py4j
    then rejects the call. A `JavaClass` calls a method without looking it up.
    """

    name: str
    client: GatewayClient

    def __getattr__(self, method: str) -> Any:
        return JavaMember(method, None, STATIC_PREFIX + self.name, self.client)

    def __call__(self, *arguments: Any) -> Any:
        return self.for_py4j(*arguments)

    @property
    def for_py4j(self) -> Any:
        """The class in the form that py4j's own functions expect."""
        return Constructor(self.name, self.client)


def iceberg_class(spark: SparkSession, name: str) -> JavaClass:
    """Return a class of the package `org.apache.iceberg` by its relative name."""
    return java_class(spark, f"org.apache.iceberg.{name}")


def java_class(spark: SparkSession, name: str) -> JavaClass:
    """Return a class by its full name."""
    return JavaClass(name, spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]
