"""The size of modules, since one idea fits in 400 lines, and the names of test modules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
MOST_LINES = 400


def long_modules(folder: Path) -> dict[str, int]:
    """Return the modules below a folder that exceed `MOST_LINES`, with their number of lines."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py")}
    return {str(path.relative_to(folder)): count for path, count in lines.items() if count > MOST_LINES}


def test_modules_have_at_most_400_lines() -> None:
    assert len(list(SOURCES.rglob("*.py"))) > 100
    assert long_modules(SOURCES) == {}


def test_long_module_is_reported(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/short.py").write_text("pass\n" * MOST_LINES, encoding="utf-8")
    (tmp_path / "deep/long.py").write_text("pass\n" * (MOST_LINES + 1), encoding="utf-8")
    assert long_modules(tmp_path) == {"deep/long.py": MOST_LINES + 1}


def test_test_modules_have_names_of_their_own() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == [], "pytest imports modules by their names alone"
