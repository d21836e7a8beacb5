"""Clients of Kafka and of the schema registry."""
