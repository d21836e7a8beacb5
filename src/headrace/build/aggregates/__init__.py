"""Incremental aggregates: add and subtract partial states, which are stored beside the rows."""
