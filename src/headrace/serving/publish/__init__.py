"""Publish tables to Postgres."""
