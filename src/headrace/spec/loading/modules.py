"""Load the Python files of a pipeline's folder that Headrace runs: generators, receivers, pages."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from threading import Lock
from types import ModuleType

_LOADING = Lock()


def load_module(path: Path) -> ModuleType:
    """Return the module of a file, loaded as part of a package that stands for its folder.

    The file imports its neighbours by relative imports. sys.path does not change, and files of the same name in two pipelines
    are two modules.
    """
    folder = path.resolve().parent
    package = f"headrace_files_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    with _LOADING:
        if package not in sys.modules:
            parent = ModuleType(package, "Files of one folder of a pipeline.")
            parent.__path__ = [str(folder)]
            sys.modules[package] = parent
        spec = importlib.util.spec_from_file_location(f"{package}.{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
        return module
