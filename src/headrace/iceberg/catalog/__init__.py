"""The Iceberg catalog: connection properties, tables, and the errors that mean an outage."""
