"""Compaction, expiry of snapshots and removal of orphan files."""
