"""Entities of tables that are too large for one process: records, edges, components and ids as rows of Spark."""
