"""Headrace leads streams into a lake: Kafka topics land exactly once in Apache Iceberg."""

__version__ = "0.1.0"
