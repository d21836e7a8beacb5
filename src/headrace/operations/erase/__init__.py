"""Removes a person from tables: who is meant, which rows are theirs, and the search that proves that none is left."""
