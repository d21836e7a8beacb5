"""The Python API: what the commands do, as methods of a project."""
