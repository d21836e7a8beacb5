"""Shared parts of commands: locks, retries, and sessions that land or build."""
