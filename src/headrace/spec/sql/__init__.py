"""Analyse the SQL of a pipeline without an engine."""
