"""How a pipeline folder is read and checked."""
