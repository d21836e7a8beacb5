"""Commits that happen once, whatever the catalog answers."""
