"""Create a pipeline as a copy of another one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.loading.document import Value, parse_document, read_document, read_text
from headrace.spec.loading.folders import FILE, OWN, absolute, find_pipeline, list_pipelines
from headrace.spec.loading.http import MAX_PORT
from headrace.spec.loading.names import IDENTIFIER_RULE, METADATA, is_identifier
from headrace.spec.loading.renames import PORTS, find_renames
from headrace.spec.loading.stage_file import STAGE, staged_names
from headrace.spec.loading.table_files import list_table_files
from headrace.spec.problems import Place, show_path

NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copy_pipeline(source: str, *, target_name: str, folder: Path) -> Path:
    """Copy the pipeline that `source` names to ./pipelines/<target_name>, and return the new folder.

    The copy can run beside the original: its name, tables, topics, locations, their environment variables and its port are
    renamed, also in its README, SQL, Python and expected rows. The folder is created atomically.
    """
    folder = absolute(folder)
    target = folder / OWN / target_name
    _check_target(target_name, target, folder=folder)
    original = find_pipeline(source, folder=folder, to_copy=True)
    place = Place(show_path(original / FILE, folder=folder), source)
    text = read_text(original / FILE, place=place)
    document = parse_document(text, place=place, environ={})
    files = (*list_table_files(original), *_staged(document, original, place=place))
    renames = find_renames(document, old=original.name, new=target_name, table_files=files, ports=_list_ports(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as temporary:
        copy = Path(temporary) / target_name
        shutil.copytree(original, copy, ignore=NOT_COPIED, copy_function=shutil.copyfile)
        for path in sorted(copy.rglob("*")):
            if path.is_file():
                renames.apply_to_file(path)
        for layer, renamed in renames.layers.items():
            for folder in (copy / layer, copy / "expected" / layer):
                if folder.is_dir():
                    folder.rename(folder.with_name(renamed))
        (copy / FILE).write_bytes(renames.apply_to_yaml(text).encode())
        copy.rename(target)
    return target


def _staged(document: Value, original: Path, *, place: Place) -> list[Path]:
    """Return a path for each stage table, as if it had a file of its own."""
    try:
        file = original / document.at("sources", "postgres", "stage").text()
    except (KeyError, SpecError):
        return []
    return [original / STAGE / f"{name}.sql" for name in staged_names(file, place=place, environ={})]


def _list_ports(folder: Path) -> set[int]:
    """Return the ports in the files of all pipelines that can be referred to by name, ignoring environment variables."""
    ports = set()
    for pipeline in list_pipelines(folder):
        place = Place(show_path(pipeline.path / FILE, folder=folder), pipeline.name)
        for keys in PORTS:
            try:
                document = read_document(pipeline.path / FILE, place=place, environ={})
                ports.add(document.at("sources", *keys).whole_number(at_least=1, at_most=MAX_PORT))
            except (SpecError, KeyError):
                continue  # no port, or an unreadable one
    return ports


def _check_target(name: str, target: Path, *, folder: Path) -> None:
    if not is_identifier(name):
        raise SpecError(f'"{name}" is not a valid pipeline name', next_step=f"Use {IDENTIFIER_RULE}: headrace new mine")
    if name == METADATA:
        raise SpecError(
            f'the name "{name}" is reserved for Headrace\'s own tables', next_step="Choose another name: headrace new mine"
        )
    if target.exists():
        raise SpecError(
            "the folder already exists",
            where=show_path(target, folder=folder),
            next_step="Choose another name, or remove the folder first.",
        )
    if any(pipeline.name == name for pipeline in list_pipelines(folder)):
        raise SpecError(
            f'"{name}" is the name of a built-in pipeline',
            next_step=f"Choose another name: headrace new my_{name} --from {name}",
        )
