"""Build strategies: one for each kind of table."""
