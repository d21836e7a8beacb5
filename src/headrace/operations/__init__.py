"""Operate a pipeline: verify, replay, erase, maintain and compare."""
