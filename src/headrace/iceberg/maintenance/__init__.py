"""Compaction, snapshot expiry and removal of orphan files."""
