"""Only headrace/iceberg/pyiceberg_private uses private API of PyIceberg; the scan that checks it finds every kind of use."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from tests.iceberg.private_uses import private_uses

ADAPTER = "headrace.iceberg.pyiceberg_private."

USES = {
    "import": ("from pyiceberg.avro.file import _SCHEMA_KEY", "imports _SCHEMA_KEY"),
    "attribute of an object": ("def apply(update): return update._apply()", "uses _apply"),
    "attribute of a module": ("from pyiceberg.avro import file\nkey = file._SCHEMA_KEY", "uses _SCHEMA_KEY"),
    "attribute by its name": ("def updates(transaction): return getattr(transaction, '_updates')", "uses _updates"),
    "inherited attribute": (
        "from pyiceberg.catalog.noop import NoopCatalog\nclass Mine(NoopCatalog):\n    def io(self): self._load_file_io()",
        "uses _load_file_io",
    ),
    "attribute of super": (
        "from pyiceberg.catalog.noop import NoopCatalog\nclass Mine(NoopCatalog):\n    def io(self): super()._load_file_io()",
        "uses _load_file_io",
    ),
    "override": (
        "from pyiceberg.catalog.noop import NoopCatalog\nclass Mine(NoopCatalog):\n    def _load_file_io(self): ...",
        "overrides _load_file_io",
    ),
    "override in a mixin": (
        "from pyiceberg.catalog.noop import NoopCatalog\n"
        "class Mixin:\n    def _load_file_io(self): ...\n"
        "class Mine(Mixin, NoopCatalog): ...",
        "overrides _load_file_io",
    ),
    "override in a class further down": (
        "from pyiceberg.catalog.noop import NoopCatalog\n"
        "class Mine(NoopCatalog): ...\n"
        "class Yours(Mine):\n    def _load_file_io(self): ...",
        "overrides _load_file_io",
    ),
    "class that is not made to be derived from": (
        "from pyiceberg.table import Transaction\nclass Mine(Transaction): ...",
        "derives from pyiceberg.table.Transaction",
    ),
    "replaced function": ("from pyiceberg import manifest\nmanifest.AvroFile = None", "replaces AvroFile"),
    "replaced function of an alias": (
        "from typing import Any\nfrom pyiceberg import manifest\nprivate: Any = manifest\nprivate.AvroFile = None",
        "replaces AvroFile",
    ),
}


def test_private_pyiceberg_api_is_used_in_the_adapter_alone() -> None:
    uses = private_uses(Path(headrace.__file__).parent)
    assert any(use.module.startswith(ADAPTER) for use in uses), "the scan finds nothing"
    outside = [str(use) for use in uses if not use.module.startswith(ADAPTER)]
    assert not outside, f"move these to headrace/iceberg/pyiceberg_private: {outside}"


@pytest.mark.parametrize("kind", USES)
def test_private_uses_finds_each_kind(tmp_path: Path, kind: str) -> None:
    source, expected = USES[kind]
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "words.py").write_text(source)
    assert expected in [use.what for use in private_uses(tmp_path / "lake")]


def test_private_uses_finds_an_override_of_a_class_in_another_module(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "base.py").write_text("from pyiceberg.catalog.noop import NoopCatalog\nclass Mine(NoopCatalog): ...")
    (tmp_path / "lake" / "words.py").write_text(
        "from lake.base import Mine\nclass Yours(Mine):\n    def _load_file_io(self): ..."
    )
    assert [str(use) for use in private_uses(tmp_path / "lake")] == ["lake.words:3: overrides _load_file_io"]


def test_private_uses_leaves_own_private_names_alone(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "words.py").write_text(
        "from pyiceberg.io import FileIO\n"
        "class Mine(FileIO):\n    def new_input(self): return self._own\n"
        "class Other:\n    def __init__(self): self._updates = self._apply()\n"
    )
    assert not private_uses(tmp_path / "lake")


def test_private_uses_leaves_data_frames_alone(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "frames.py").write_text("def bind(frame, schema): frame._schema = schema")
    assert not private_uses(tmp_path / "lake")
