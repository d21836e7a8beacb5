"""Remove the state of a working folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from headrace.app.background import stop_background
from headrace.errors import SettingsError
from headrace.servers.stack import stop_servers
from headrace.sessions.lock import pipeline_lock
from headrace.settings import Settings

_OURS = frozenset({"logs", "services", "kafka", "postgres", "connect", "registry", "warehouse", "catalog.db", "locks"})


def state_size(settings: Settings) -> int:
    """Return the size of the state on disk in bytes."""
    return sum(path.stat().st_size for path in settings.home.rglob("*") if path.is_file())


def remove_state(settings: Settings, *, report: Callable[[str], None]) -> None:
    """Stop the services and remove the home.

    Raises a SettingsError if the folder does not look like a home, and a LockedError if a pipeline runs there.
    """
    names = {path.name for path in settings.home.iterdir()}
    if names and not names & _OURS:
        raise SettingsError(
            "the folder does not contain Headrace's state, so it was not removed",
            where=str(settings.home),
            next_step="Check HEADRACE_HOME, or remove the folder yourself.",
        )
    stop_background(settings, target="", report=report)
    for lock in (settings.home / "locks").glob("*.lock"):
        with pipeline_lock(settings, lock.stem, take_over=False):
            pass
    stop_servers(settings, report=report)
    shutil.rmtree(settings.home)
    report(f"Removed {settings.home}")
