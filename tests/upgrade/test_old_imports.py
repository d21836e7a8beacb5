"""Names that copies of 0.1's pipelines import are still there."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("headrace.serving.pages", "headrace.serving.web.pages", ["Readers", "readers", "render_page"]),
        ("headrace.serving.problems", "headrace.serving.web.problems", ["REFUSALS"]),
        ("headrace.spec.pipeline", "headrace.spec.model.pipeline", ["Pipeline"]),
    ],
)
def test_old_module_has_the_names_of_the_new_one(old: str, new: str, names: list[str]) -> None:
    for name in names:
        assert getattr(import_module(old), name) is getattr(import_module(new), name)
