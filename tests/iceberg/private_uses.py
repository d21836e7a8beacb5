"""Find uses of PyIceberg's private API in Python files, without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyiceberg

LIBRARY = Path(pyiceberg.__file__).parent
EXTENSION_POINTS = frozenset({"NoopCatalog", "FileIO", "InputFile", "OutputFile", "ValidatableTableRequirement"})
"""The classes of PyIceberg that are made to be derived from: what they call of a subclass is public."""

_DATA_FRAME = frozenset({"_schema"})
"""Names that Spark's DataFrames have too: in a module without PyIceberg they are Spark's."""

_REFLECTION = frozenset({"getattr", "setattr", "hasattr", "delattr"})


@dataclass(frozen=True, order=True)
class PrivateUse:
    """A line of a module that uses private API of PyIceberg."""

    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"

    @property
    def name(self) -> str:
        """The name of PyIceberg's that is used."""
        return self.what.split()[-1]


@dataclass
class Module:
    """A parsed file, and what its imported names and classes are elsewhere."""

    name: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)


@lru_cache
def private_uses(root: Path) -> tuple[PrivateUse, ...]:
    """Return every use of private API of PyIceberg in the package at `root`, by file and line."""
    modules = [read_module(path, root.parent) for path in sorted(root.rglob("*.py"))]
    private, related = private_names(LIBRARY), related_classes(modules)
    return tuple(sorted(use for module in modules for use in set(_uses(module, private, related))))


@lru_cache
def private_names(package: Path) -> frozenset[str]:
    """Return the names with one leading underscore that a package defines anywhere: functions, classes, attributes."""
    return frozenset(
        name for path in package.rglob("*.py") for name in _defined(ast.parse(path.read_text())) if _is_private(name)
    )


def read_module(path: Path, source: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    module = Module(".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text()))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            module.imports.update({alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module:
            module.imports.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            _follow_alias(module, node.targets, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Name | ast.Attribute):
            _follow_alias(module, [node.target], node.value)
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = tuple(_full_name(module, base) for base in node.bases)
    return module


def related_classes(modules: Iterable[Module]) -> frozenset[str]:
    """Return the full names of classes that derive from PyIceberg's, and of their mixins."""
    bases = {f"{module.name}.{name}": parents for module in modules for name, parents in module.classes.items()}
    related: set[str] = set()
    while True:
        derived = {name for name, parents in bases.items() if any(_is_pyiceberg(base) or base in related for base in parents)}
        mixed_in = {base for name in derived for base in bases[name] if base in bases}
        if derived | mixed_in <= related:
            return frozenset(related)
        related |= derived | mixed_in


def _uses(module: Module, private: frozenset[str], related: frozenset[str]) -> Iterator[PrivateUse]:
    def use(node: ast.stmt | ast.expr, what: str) -> PrivateUse:
        return PrivateUse(module.name, node.lineno, what)

    if not any(_is_pyiceberg(name) for name in module.imports.values()):
        private -= _DATA_FRAME
    own = {id(node) for owner in _related_nodes(module, related) for node in ast.walk(owner)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and _is_pyiceberg(node.module or ""):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (use(node, f"imports {name}") for name in names if _is_private(name))
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names if _is_pyiceberg(alias.name) for part in alias.name.split(".")]
            yield from (use(node, f"imports {name}") for name in names if _is_private(name))
        elif isinstance(node, ast.Attribute):
            if node.attr in private and (id(node) in own or not _is_self(node.value)):
                yield use(node, f"uses {node.attr}")
            if isinstance(node.ctx, ast.Store) and _is_pyiceberg(_full_name(module, node.value)):
                yield use(node, f"replaces {node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REFLECTION:
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (use(node, f"uses {text}") for text in texts if text in private)
    for owner in _related_nodes(module, related):
        for base in module.classes[owner.name]:
            if _is_pyiceberg(base) and base.rpartition(".")[2] not in EXTENSION_POINTS:
                yield use(owner, f"derives from {base}")
        for part in owner.body:
            yield from (use(part, f"overrides {name}") for name in _names_of(part) if name in private)


def _related_nodes(module: Module, related: frozenset[str]) -> list[ast.ClassDef]:
    classes = (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
    return [node for node in classes if f"{module.name}.{node.name}" in related]


def _names_of(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a class defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _follow_alias(module: Module, targets: list[ast.expr], value: ast.expr) -> None:
    name = _full_name(module, value)
    if _is_pyiceberg(name):
        module.imports.update({target.id: name for target in targets if isinstance(target, ast.Name)})


def _full_name(module: Module, node: ast.expr) -> str:
    """Return the full name of what an expression names, or an empty text for anything but a name."""
    if isinstance(node, ast.Subscript):
        return _full_name(module, node.value)
    if isinstance(node, ast.Attribute):
        return f"{_full_name(module, node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return module.imports.get(node.id, f"{module.name}.{node.id}")
    return ""


def _is_self(node: ast.expr) -> bool:
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls"))


def _is_pyiceberg(name: str) -> bool:
    return name.split(".")[0] == "pyiceberg"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"
