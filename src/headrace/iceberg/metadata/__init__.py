"""Headrace's own tables in the namespace `metadata`: erasures and quarantine."""
