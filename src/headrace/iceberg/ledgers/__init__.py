"""Ledgers: the progress of landing, builds and replays, recorded in each table's properties."""
