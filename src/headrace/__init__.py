"""Headrace leads streams into a lake: Kafka topics land exactly once in Apache Iceberg, and become tables of tables."""

from headrace.spec.decorator import table
from headrace.spec.received import Received, receive

__version__ = "0.1.0"
__all__ = ["Received", "receive", "table"]
