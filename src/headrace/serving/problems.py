"""The name that `headrace.serving.web.problems` had in version 0.1, for pages of pipelines that were copied then."""

from headrace.serving.web.problems import REFUSALS

__all__ = ["REFUSALS"]
