"""Headrace leads streams into a lake: Kafka topics land exactly once in Apache Iceberg, and become tables of tables."""

from headrace.spec.model.decorator import table
from headrace.spec.model.received import Delivery, Message, Payload, PayloadError, Received, receive, webhook

__version__ = "0.2.0.dev0"
__all__ = ["Delivery", "Message", "Payload", "PayloadError", "Received", "receive", "table", "webhook"]
