"""Columns that records have while they are resolved."""

NODE = "__node"
CLUSTER = "__cluster"
OWN_ID = "__own_id"
"""The id of the entity that a record is the first of."""
