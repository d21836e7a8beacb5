"""Rows of data files, read and found without Spark."""
