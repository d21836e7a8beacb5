"""Schemas and partitioning of Iceberg tables, and how they change."""
