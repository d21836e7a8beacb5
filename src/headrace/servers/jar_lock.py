"""Write the `jgo.lock.toml` of a `jgo.toml`: every jar that it resolves to, with version and sha256.

The archives of `archives.toml` (`group:artifact:version:classifier:packaging`) are distributions that contain all they need, so
their dependencies are not resolved.

Run this after changing versions: `python -m headrace.servers.jar_lock src/headrace/servers/jars/kafka`. The lock names no
repository, so it is valid behind any mirror.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def write_lock(folder: Path) -> Path:
    """Write the lock file and return its path. Resolves and downloads everything into a temporary folder."""
    from jgo.config import GlobalSettings
    from jgo.env import EnvironmentBuilder, EnvironmentSpec, LockedDependency, LockFile, compute_spec_hash
    from jgo.maven import MavenContext
    from jgo.maven._core import DEFAULT_REMOTE_REPOS

    with tempfile.TemporaryDirectory() as fresh:
        repositories = {**DEFAULT_REMOTE_REPOS, **GlobalSettings.load().repositories}
        context = MavenContext(repo_cache=Path(fresh) / "repository", remote_repos=repositories, timeout=60)
        builder = EnvironmentBuilder(context=context, cache_dir=Path(fresh) / "environments")
        spec = EnvironmentSpec.load(folder / "jgo.toml")
        resolved = builder.resolve_lockfile(spec) if spec.coordinates else None
        archives: list[LockedDependency] = []
        for written in _list_archives(folder / "archives.toml"):
            group, artifact, version, classifier, packaging = written.split(":")
            project = context.project(group, artifact).at_version(version)
            path = project.artifact(classifier=classifier, packaging=packaging).resolve()
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            archives.append(LockedDependency(group, artifact, version, packaging, classifier, sha256=sha256))
    lock = LockFile(
        dependencies=[*(resolved.dependencies if resolved else ()), *archives],
        environment_name=spec.name,
        min_java_version=resolved.min_java_version if resolved else None,
        spec_hash=compute_spec_hash(folder / "jgo.toml"),
    )
    lock.save(folder / "jgo.lock.toml")
    return folder / "jgo.lock.toml"


def _list_archives(path: Path) -> list[str]:
    return list(tomllib.loads(path.read_text(encoding="utf-8"))["coordinates"]) if path.exists() else []


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(write_lock(Path(argument)))
