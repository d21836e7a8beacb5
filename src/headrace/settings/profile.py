"""Read a profile's section from headrace.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import SettingsError
from headrace.settings.setting_specs import SENSITIVE
from headrace.settings.values import PASSED_ON_SECTIONS, SECRETS, SETTING_SPECS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "headrace.toml"
LOCAL, STACK = "local", "stack"
"""The profiles that need no section in the file: the embedded servers, and those of `headrace up --profile stack`."""

_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|password\s*=", re.IGNORECASE)
"""A connection string that contains a password."""

_PREFIXES = tuple(f"{section.name}." for section in PASSED_ON_SECTIONS)
"""The prefixes of names that are passed on to other programs, and not checked."""


def read_profile(path: Path, *, profile: str) -> dict[str, str]:
    """Return the profile's values by their dotted names. An invalid file or an unknown name raises a SettingsError."""
    if not path.exists():
        if profile in (LOCAL, STACK):
            return {}
        raise SettingsError(
            f'not found: {FILE} with the profile "{profile}"',
            where=str(path),
            next_step=f"Create {FILE} with a [{profile}] section, or remove --profile.",
        )
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not valid TOML: {error}", where=str(path), next_step="Fix the file.") from error
    except RecursionError:
        raise SettingsError("the file is nested too deeply", where=str(path), next_step="Fix the file.") from None
    if profile not in document:
        if profile in (LOCAL, STACK):
            return {}
        raise SettingsError(
            f'not found: profile "{profile}"',
            where=str(path),
            next_step=f"Profiles are: {', '.join(sorted(document)) or 'none'}. Add [{profile}] or choose one of them.",
        )
    flat = dict(_flatten(document[profile]))
    names = {spec.name for spec in SETTING_SPECS}
    for name in flat:
        if name not in names and not name.startswith(_PREFIXES):
            raise SettingsError(
                f'unknown setting "{name}" in [{profile}]',
                where=str(path),
                next_step=f"Settings are: {', '.join(sorted(names | {f'{prefix}…' for prefix in _PREFIXES}))}.",
            )
    return flat


def refuse_secrets(from_file: Mapping[str, str], *, profile: str) -> None:
    """Raise a SettingsError if the file contains a password: the file is committed, copied and displayed."""
    by_name = {spec.name: spec for spec in SETTING_SPECS}
    for name, value in from_file.items():
        is_passed_on = name.startswith(_PREFIXES)
        if not _PASSWORD.search(value) and not (is_passed_on and re.search(SENSITIVE, name)):
            continue
        if is_passed_on:
            step = f"Remove it, and set a secret in the environment: {', '.join(sorted(SECRETS.values()))}."
        else:
            apart = f"set {by_name[name].password}, or " if by_name[name].password else ""
            step = f"Remove the password and {apart}set the whole URL as {by_name[name].environ}."
        raise SettingsError(
            f"{name} contains a password, and secrets must come from the environment",
            where=f"{FILE} [{profile}]",
            next_step=step,
        )


def _flatten(section: object, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(section, dict):
        return [(prefix, str(section).lower() if isinstance(section, bool) else str(section))]
    return [pair for key, value in section.items() for pair in _flatten(value, f"{prefix}.{key}" if prefix else str(key))]
