"""The name of `headrace.serving.web.pages` in version 0.1, for pipelines that were copied then."""

from headrace.serving.web.pages import Readers, readers, render_page

__all__ = ["Readers", "readers", "render_page"]
