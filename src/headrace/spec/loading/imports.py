"""What the Python files of a pipeline import: found missing without running any of them."""

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
    """Keep as problems what the pipeline's generators, receivers and pages import and is not there.

    Only what every load of a file imports is looked at: the imports at its top, and those of the neighbours that it imports.
    """
    waiting = [stream.generator for stream in pipeline.streams if stream.generator is not None]
    waiting += [pipeline.http.file] if pipeline.http else []
    waiting += [pipeline.serving.pages] if pipeline.serving.pages else []
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        place = files.place(path, argument=argument)
        module = problems.attempt(_parse, path, place)
        for statement in module.body if module else ():
            if isinstance(statement, ast.Import):
                for each in statement.names:
                    problems.attempt(_check_installed, each.name, statement.lineno, path, place)
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
    """Refuse a module whose package is not installed; the package is looked for and not loaded."""
    package = name.partition(".")[0]
    try:
        found = find_spec(package) is not None
    except ValueError:
        found = True  # it is loaded, in a way that does not say from where
    if found:
        return
    if (path.parent / f"{package}.py").is_file():
        raise place.error(f'"{name}" is a file beside this one', line=line, fix=f"Write from .{name} import …")
    raise place.error(f'it imports "{name}", which is not installed', line=line, fix=f"Install {package}, or fix the name")


def _find_neighbours(statement: ast.ImportFrom, path: Path, place: Place) -> list[Path]:
    """Return the files beside a file that it imports from."""
    if statement.level > 1:
        raise place.error("it imports from outside of its folder", line=statement.lineno, fix="Copy the file beside this one")
    names = [each.name for each in statement.names]
    modules = [statement.module.partition(".")[0]] if statement.module else names
    for module in modules:
        if not (path.parent / f"{module}.py").is_file() and not (path.parent / module).is_dir():
            beside = sorted(each.stem for each in path.parent.glob("*.py") if each != path)
            hint = suggest(module, beside, plural="Files beside it")
            raise place.error(f'there is no file "{module}.py" beside it', line=statement.lineno, fix=f"{hint} Fix the name")
    found = [path.parent / f"{module}.py" for module in modules if (path.parent / f"{module}.py").is_file()]
    if statement.module in modules and found:
        _check_names(names, found[0], statement.lineno, place)
    return found


def _check_names(names: list[str], neighbour: Path, line: int, place: Place) -> None:
    try:
        defined = set(_defined(ast.parse(neighbour.read_bytes())))
    except (SyntaxError, ValueError):
        return  # which is said of the neighbour itself
    for name in names:
        if name != _ANYTHING and name not in defined and not defined & {_ANYTHING, "__getattr__"}:
            hint = suggest(name, sorted(each for each in defined if not each.startswith("_")), plural="Names in it")
            raise place.error(f'{neighbour.name} has no "{name}"', line=line, fix=f"{hint} Fix the name")


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines at its top, in whichever branch."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield each.name
            continue
        if isinstance(each, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        yield from _defined(each)
