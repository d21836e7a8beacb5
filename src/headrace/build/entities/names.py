"""Names of temporary columns of records while they are resolved."""

NODE = "__node"
CLUSTER = "__cluster"
OWN_ID = "__own_id"
"""The id for an entity that starts with the record."""
