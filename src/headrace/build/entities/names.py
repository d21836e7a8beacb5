"""Columns that records have while they are resolved."""

NODE = "__node"
CLUSTER = "__cluster"
