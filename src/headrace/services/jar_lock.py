"""Writes `jgo.lock.toml` next to a `jgo.toml`: every jar that it comes to, with version and sha256.

For those who change versions: `python -m headrace.services.jar_lock src/headrace/services/jars/kafka`. The lock names
no repository, so it holds behind any mirror.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def write_lock(folder: Path) -> Path:
    """Gives back the lock file's path; resolves and downloads afresh, into a folder that is thrown away."""
    from jgo.config import GlobalSettings
    from jgo.env import EnvironmentBuilder, EnvironmentSpec, LockFile, compute_spec_hash
    from jgo.maven import MavenContext
    from jgo.maven._core import DEFAULT_REMOTE_REPOS

    with tempfile.TemporaryDirectory() as fresh:
        repositories = {**DEFAULT_REMOTE_REPOS, **GlobalSettings.load().repositories}
        context = MavenContext(repo_cache=Path(fresh) / "repository", remote_repos=repositories, timeout=60)
        builder = EnvironmentBuilder(context=context, cache_dir=Path(fresh) / "environments")
        spec = EnvironmentSpec.load(folder / "jgo.toml")
        resolved = builder.resolve_lockfile(spec)
    lock = LockFile(
        dependencies=resolved.dependencies,
        environment_name=spec.name,
        min_java_version=resolved.min_java_version,
        spec_hash=compute_spec_hash(folder / "jgo.toml"),
    )
    lock.save(folder / "jgo.lock.toml")
    return folder / "jgo.lock.toml"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(write_lock(Path(argument)))
