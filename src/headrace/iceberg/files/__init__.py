"""Data files of Iceberg tables: written, listed and measured."""
