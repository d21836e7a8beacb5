"""The query engines besides DuckDB: each has its own SQL dialect and returns Arrow."""
