"""The tables in `metadata` that Headrace records itself in."""
