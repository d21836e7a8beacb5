"""How tables are built: one strategy for each kind."""
