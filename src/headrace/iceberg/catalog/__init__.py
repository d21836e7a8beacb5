"""The Iceberg catalog: how it is reached, its tables, and which errors mean an outage."""
