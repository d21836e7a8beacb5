"""The name that `headrace.serving.web.pages` had in version 0.1, for pages of pipelines that were copied then."""

from headrace.serving.web.pages import Readers, readers, render_page

__all__ = ["Readers", "readers", "render_page"]
