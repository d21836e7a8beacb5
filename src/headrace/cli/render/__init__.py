"""Render results for a terminal, and as JSON or CSV."""
