"""Secrets that Headrace makes up for servers of its own: one file each, which its owner alone may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def keep_secret(path: Path) -> str:
    """Gives back the secret of a file; the first call makes it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        made = secrets.token_urlsafe(24)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_privately(path, made + "\n")
        return made


def write_privately(path: Path, text: str) -> None:
    """Writes a file anew that its owner alone may read, from its first byte on."""
    path.unlink(missing_ok=True)
    fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fresh, "w", encoding="utf-8") as file:
        file.write(text)
