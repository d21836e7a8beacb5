"""Delete files of Iceberg tables."""
