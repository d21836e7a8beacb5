"""Checks of imports, samples and expected rows without loading any file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import check_pipeline, check_pipelines
from tests.support.folders import write_files

EVENTS = "def events(random, now):\n    yield {}\n"
NEEDS = "not valid JSON: "


def errors_of(folder: Path, files: dict[str, str]) -> list[str]:
    write_files(folder / "pipelines" / "mine", files)
    return [str(error) for error in check_pipeline("mine", environ={}, folder=folder).errors]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"generators/charges.py": f"import os\nimport no_such_package.inner\n{EVENTS}"},
            'charges.py:2: module "no_such_package.inner" is not installed\nInstall no_such_package, or fix',
        ),
        (
            {"generators/charges.py": f"from .wrld import X\n{EVENTS}"},
            'charges.py:1: not found: file "wrld.py" in the same folder\n',
        ),
        (
            {"generators/charges.py": f"from .world import Word\n{EVENTS}", "generators/world.py": "class World: ...\n"},
            'charges.py:1: world.py does not define "Word"\nDid you mean "World"? Fix the name',
        ),
        (
            {"generators/charges.py": f"from . import world\n{EVENTS}", "generators/world.py": "import nowhere_at_all\n"},
            'world.py:1: module "nowhere_at_all" is not installed',
        ),
        (
            {"generators/charges.py": f"from .world import X\n{EVENTS}", "generators/world.py": "X = (\n"},
            "world.py:1: not valid Python: ",
        ),
        (
            {"generators/charges.py": f"import world_of_mine\n{EVENTS}", "generators/world_of_mine.py": ""},
            'charges.py:1: "world_of_mine" is a file in the same folder\nUse a relative import: from .world_of_mine import …',
        ),
        (
            {"generators/charges.py": f"from ..other import X\n{EVENTS}"},
            "charges.py:1: relative imports must stay in the file's folder",
        ),
        ({"generators/charges.py": "import os\n"}, 'charges.py:1: a generator needs a function "events"'),
    ],
)
def test_check_rejects_a_generator_that_fails_to_import(
    pipeline: Path, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    (error,) = errors_of(tmp_path, files)
    assert error.startswith(f"pipelines/mine/generators/{says}")
    assert error.endswith("then run: headrace check mine")


def test_check_accepts_installed_and_optional_imports(pipeline: Path, tmp_path: Path) -> None:
    generator = (
        "from __future__ import annotations\nimport os.path\nfrom .world import Early, Late, table, unpacked\n"
        "try:\n    import no_such_package\nexcept ImportError:\n    pass\n"
        f"{EVENTS}    import another_that_is_not_there\n"
    )
    world = "import os as table\nif table:\n    Early = 1\nelse:\n    Early = 2\nLate: int = 3\n(unpacked, other) = (1, 2)\n"
    assert errors_of(tmp_path, {"generators/charges.py": generator, "generators/world.py": world}) == []


@pytest.mark.parametrize("line", ['{"id": 1', "", "not JSON"])
def test_check_rejects_a_sample_that_is_not_json(pipeline: Path, tmp_path: Path, line: str) -> None:
    sample = f'{{"id": "a"}}\n{line}\n{{"id": "b"}}\n'
    (error,) = errors_of(tmp_path, {"sample/charges.jsonl": sample})
    assert error.startswith(f"pipelines/mine/sample/charges.jsonl:2: {NEEDS}")
    assert error.endswith("\nFix the line, or remove its row from expected/charges.jsonl, then run: headrace check mine")
    rows = ['{"id": "a"}', '{"id": "b"}', '{"id": "c"}']
    assert errors_of(tmp_path, {"expected/charges.jsonl": "\n".join(rows[:2]) + "\n"}) == [], "it is meant"
    assert len(errors_of(tmp_path, {"expected/charges.jsonl": "\n".join(rows) + "\n"})) == 1


def test_check_rejects_expected_rows_that_are_not_json(pipeline: Path, tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, {"expected/marts/daily.jsonl": "{}\n{'id': 1}\n"})
    assert error.startswith(f"pipelines/mine/expected/marts/daily.jsonl:2: {NEEDS}")


def test_check_requires_json_samples_for_avro_streams(pipeline: Path, tmp_path: Path) -> None:
    text = (pipeline / "pipeline.yml").read_text().replace("json", "avro").replace(".sql", ".avsc")
    text = text.replace("partition_by: [days(created), country]", "")
    (error,) = errors_of(tmp_path, {"pipeline.yml": text, "sample/charges.jsonl": "no\n", "expected/charges.jsonl": ""})
    assert error.startswith(f"pipelines/mine/sample/charges.jsonl:1: {NEEDS}")
    assert error.endswith("\nFix the line, then run: headrace check mine")


def test_check_accepts_the_built_in_pipelines(tmp_path: Path) -> None:
    assert [str(error) for check in check_pipelines(environ={}, folder=tmp_path) for error in check.errors] == []
