"""Aggregates that are maintained by adding and subtracting partial states, which are stored beside their rows."""
