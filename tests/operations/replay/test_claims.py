"""A replay's claim on tables is valid only while its process is alive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import LockedError
from headrace.sessions.claims import claim_tables, read_claims
from headrace.sessions.lock import replay_lock
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName

ONE, OTHER = TableName("marts", "one"), TableName("marts", "other")


def test_claims_release_tables_one_by_one(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    with replay_lock(settings, "shelf"), claim_tables(settings, "shelf", [ONE, OTHER]) as claims:
        assert read_claims(settings, "shelf") == {ONE, OTHER}
        assert read_claims(settings, "other") == frozenset()
        claims.release(ONE)
        assert read_claims(settings, "shelf") == {OTHER}
        with (
            pytest.raises(LockedError, match="another application already replays this pipeline"),
            replay_lock(settings, "shelf"),
        ):
            pass
    assert read_claims(settings, "shelf") == frozenset()


DYING = """
import os, sys
from pathlib import Path
from headrace.sessions.claims import claim_tables
from headrace.sessions.lock import replay_lock
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName

settings = load_settings(flags={}, environ={}, folder=Path(sys.argv[1]))
with replay_lock(settings, "shelf"), claim_tables(settings, "shelf", [TableName("marts", "one")]):
    os._exit(9)
"""


def test_claims_of_a_killed_replay_are_void(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], check=False).returncode == 9
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    assert [path.name for path in (settings.home / "locks").iterdir() if "shelf" in path.name], "it had claimed"
    assert read_claims(settings, "shelf") == frozenset()
    with replay_lock(settings, "shelf"):
        pass
