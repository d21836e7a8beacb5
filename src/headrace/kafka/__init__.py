"""Clients of Kafka and the schema registry."""
