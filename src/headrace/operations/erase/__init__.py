"""Erase a person from all tables of a pipeline, and prove that nothing is left."""
