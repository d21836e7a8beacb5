"""Incremental builds of SQL and Python tables, from raw tables to marts."""
