"""A pipeline as other tools have it."""
