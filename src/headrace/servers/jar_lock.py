"""Writes `jgo.lock.toml` next to a `jgo.toml`: every jar that it comes to, with version and sha256.

What `archives.toml` names (`group:artifact:version:classifier:packaging`) is taken as it is: a distribution with all it needs.

For those who change versions: `python -m headrace.servers.jar_lock src/headrace/servers/jars/kafka`. The lock names
no repository, so it holds behind any mirror.
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
    """Return the lock file's path; resolves and downloads afresh, into a folder that is thrown away."""
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
