"""Replay: decode landed messages again, and correct the rows that differ."""
