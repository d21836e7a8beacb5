"""Expectations: a sentence and a condition each, counted where rows are written, and what happens to rows that fail."""
