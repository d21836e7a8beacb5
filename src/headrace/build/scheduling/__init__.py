"""Decide which table a live run builds next."""
