"""Engines beside DuckDB that read the lake: each takes SQL of its own and returns Arrow."""
