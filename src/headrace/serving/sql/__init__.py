"""SQL on the lake, with several engines."""
