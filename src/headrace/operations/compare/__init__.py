"""Compare tables of the lake with their Postgres tables, row by row and column by column."""
