"""The command line."""

from headrace.cli.app import app, main

__all__ = ["app", "main"]
