"""Maintain tables, by command and while a pipeline runs."""
