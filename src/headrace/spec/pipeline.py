"""Alias of `headrace.spec.model.pipeline` for pages of pipelines that were copied with version 0.1."""

from headrace.spec.model.pipeline import Pipeline

__all__ = ["Pipeline"]
