"""Idempotent commits, also after conflicts and lost responses."""
