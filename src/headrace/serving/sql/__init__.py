"""SQL on the lake, by several engines."""
