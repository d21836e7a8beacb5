"""Maintenance of tables, by command and while a pipeline runs."""
