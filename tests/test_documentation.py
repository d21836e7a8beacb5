"""The documentation names links and make targets that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.joinpath("docs").rglob("*.md"))
CURRENT = [page for page in PAGES if "decisions" not in page.parts]
"""Pages that describe what is, and not what was decided once."""
README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _reference_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "scripts" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_match_the_code() -> None:
    for name, page in _reference_pages().PAGES.items():
        written = ROOT.joinpath("docs/reference", name).read_text(encoding="utf-8")
        assert written == page(), f"docs/reference/{name} is stale: run python scripts/reference_pages.py"


def test_links_of_the_readme_lead_to_files() -> None:
    targets = [target for target in LINK.findall(README.read_text(encoding="utf-8")) if "://" not in target]
    assert len(targets) > 20
    assert [target for target in targets if not ROOT.joinpath(target).exists()] == []


def test_readme_stays_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize(("page", "changed"), [("profiles.md", "| `home` |"), ("cli.md", "## headrace demo")])
def test_changed_page_is_noticed(page: str, changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = _reference_pages()
    written = pages.REFERENCE.joinpath(page).read_text(encoding="utf-8").replace(changed, changed.upper())
    tmp_path.joinpath(page).write_text(written, encoding="utf-8")
    monkeypatch.setattr(pages, "REFERENCE", tmp_path)
    assert pages.PAGES[page]() != written


def test_every_make_target_is_documented() -> None:
    makefile = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.MULTILINE))
    page = ROOT.joinpath("docs/reference/make-targets.md").read_text(encoding="utf-8")
    assert targets - set(re.findall(r"make ([a-z-]+)", page)) == set()
    for text in (README, *CURRENT):
        named = set(re.findall(r"`make ([a-z-]+)", text.read_text(encoding="utf-8")))
        if "coming-from" not in text.parts:
            assert named - targets == set(), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_loads_nothing_from_a_server(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```mermaid" not in text, "the site's theme would load mermaid from a server"
    assert re.findall(r"!\[[^\]]*\]\(https?:|<(?:script|img|link)\b", text) == []


def test_source_files_name_pages_that_exist() -> None:
    named = {
        (file, match)
        for folder in ("src", "tests", "benchmarks", "scripts")
        for file in ROOT.joinpath(folder).rglob("*.py")
        for match in re.findall(r"\bdocs/[a-z/0-9-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert sorted((str(file), page) for file, page in named if not ROOT.joinpath(page).exists()) == []
