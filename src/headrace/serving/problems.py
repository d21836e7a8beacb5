"""The name of `headrace.serving.web.problems` in version 0.1, for pipelines that were copied then."""

from headrace.serving.web.problems import REFUSALS

__all__ = ["REFUSALS"]
