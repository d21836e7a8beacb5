"""Check the imports of a pipeline's Python files without running the files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from headrace.spec.loading.document import read_text
from headrace.spec.loading.files import Files
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Place, Problems, suggest

_ANYTHING = "*"


def check_imports(pipeline: Pipeline, *, files: Files, argument: str, problems: Problems) -> None:
    """Collect an error for each missing import of the pipeline's generators, receivers and pages.

    Only top-level imports are checked, in these files and in the neighbouring files that they import.
    """
    waiting = [stream.generator for stream in pipeline.streams if stream.generator is not None]
    waiting += [pipeline.http.file] if pipeline.http else []
    waiting += [pipeline.serving.pages] if pipeline.serving.pages else []
    visited: set[Path] = set()
    while waiting:
        path = waiting.pop(0)
        if path in visited:
            continue
        visited.add(path)
        place = files.place(path, argument=argument)
        module = problems.attempt(_parse, path, place)
        for statement in module.body if module else ():
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    problems.attempt(_check_installed, alias.name, statement.lineno, path, place)
            elif isinstance(statement, ast.ImportFrom) and not statement.level:
                problems.attempt(_check_installed, statement.module or "", statement.lineno, path, place)
            elif isinstance(statement, ast.ImportFrom):
                waiting += problems.attempt(_find_neighbours, statement, path, place) or []


def _parse(path: Path, place: Place) -> ast.Module:
    try:
        return ast.parse(read_text(path, place=place))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise place.error(f"not valid Python: {getattr(error, 'msg', error)}", line=line, fix="Fix the line") from None


def _check_installed(name: str, line: int, path: Path, place: Place) -> None:
    """Raise a SpecError for a module whose package is not installed. The package is located, not loaded."""
    package = name.partition(".")[0]
    try:
        is_installed = find_spec(package) is not None
    except ValueError:
        is_installed = True  # loaded without a spec, so it is installed
    if is_installed:
        return
    if (path.parent / f"{package}.py").is_file():
        raise place.error(
            f'"{name}" is a file in the same folder', line=line, fix=f"Use a relative import: from .{name} import …"
        )
    raise place.error(f'module "{name}" is not installed', line=line, fix=f"Install {package}, or fix the name")


def _find_neighbours(statement: ast.ImportFrom, path: Path, place: Place) -> list[Path]:
    """Return the neighbouring files that a relative import reads."""
    if statement.level > 1:
        raise place.error(
            "relative imports must stay in the file's folder",
            line=statement.lineno,
            fix="Copy the imported file into the folder",
        )
    names = [alias.name for alias in statement.names]
    modules = [statement.module.partition(".")[0]] if statement.module else names
    for module in modules:
        if not (path.parent / f"{module}.py").is_file() and not (path.parent / module).is_dir():
            beside = sorted(file.stem for file in path.parent.glob("*.py") if file != path)
            hint = suggest(module, beside, plural="Files in the folder")
            raise place.error(
                f'not found: file "{module}.py" in the same folder', line=statement.lineno, fix=f"{hint} Fix the name"
            )
    neighbours = [path.parent / f"{module}.py" for module in modules if (path.parent / f"{module}.py").is_file()]
    if statement.module in modules and neighbours:
        _check_names(names, neighbours[0], statement.lineno, place)
    return neighbours


def _check_names(names: list[str], neighbour: Path, line: int, place: Place) -> None:
    try:
        defined = set(_defined(ast.parse(neighbour.read_bytes())))
    except (SyntaxError, ValueError):
        return  # reported for the neighbour itself
    for name in names:
        if name != _ANYTHING and name not in defined and not defined & {_ANYTHING, "__getattr__"}:
            hint = suggest(
                name,
                sorted(public_name for public_name in defined if not public_name.startswith("_")),
                plural="Names in the file",
            )
            raise place.error(f'{neighbour.name} does not define "{name}"', line=line, fix=f"{hint} Fix the name")


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines at its top level, in any branch."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child.name
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        yield from _defined(child)
