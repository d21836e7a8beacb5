"""The name that `headrace.spec.model.pipeline` had in version 0.1, for pages of pipelines that were copied then."""

from headrace.spec.model.pipeline import Pipeline

__all__ = ["Pipeline"]
