"""Compare the lake with its topics, offset by offset."""
