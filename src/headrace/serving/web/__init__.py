"""The control room and the pages of pipelines."""
