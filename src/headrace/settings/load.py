"""Load the settings of a command from flags, the environment and headrace.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headrace.errors import SettingsError
from headrace.settings.check import check_settings
from headrace.settings.profile import FILE, LOCAL, STACK, read_profile, refuse_secrets
from headrace.settings.setting_specs import SettingSpec
from headrace.settings.values import PASSED_ON_SECTIONS, SECRETS, SETTING_SPECS, Settings

_DEFAULT = "default"


def load_settings(*, flags: Mapping[str, str], environ: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings for `folder`. An unknown name or an invalid value raises a SettingsError."""
    profile, chosen_by = _choose_profile(flags=flags, environ=environ)
    from_file = read_profile(folder / FILE, profile=profile)
    refuse_secrets(from_file, profile=profile)
    values: dict[str, Any] = {name: environ.get(variable) or None for name, variable in SECRETS.items()}
    values |= {section.field: _select(f"{section.name}.", from_file) for section in PASSED_ON_SECTIONS}
    origins = {"profile": chosen_by}
    for spec in SETTING_SPECS:
        if flags.get(spec.name):
            text, origin = flags[spec.name], "flag"
        elif environ.get(spec.environ):
            text, origin = environ[spec.environ], f"environment ({spec.environ})"
        elif spec.name in from_file:
            text, origin = from_file[spec.name], f"{FILE} [{profile}]"
        else:
            text, origin = spec.default or "", _DEFAULT
        values[spec.field] = None if not text and spec.default is None else _read(spec, text, origin, folder=folder)
        origins[spec.name] = origin
    if profile == STACK and origins["home"] == _DEFAULT:
        values["home"] = (values["home"] / STACK).resolve()
    if profile == STACK:
        values["services_secure"] = True
    values |= {name: value for name, value in _derived_defaults(values).items() if values[name] in (None, "")}
    settings = Settings(
        profile=profile, folder=folder.resolve(), origins=MappingProxyType(origins), spark_conf_dir=None, **values
    )
    check_settings(settings)
    return settings


def _choose_profile(*, flags: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str]:
    if flags.get("profile"):
        return flags["profile"], "flag"
    if environ.get("HEADRACE_PROFILE"):
        return environ["HEADRACE_PROFILE"], "environment (HEADRACE_PROFILE)"
    return LOCAL, _DEFAULT


def _select(prefix: str, from_file: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of a section that is passed on, by their names without the prefix."""
    return MappingProxyType({name.removeprefix(prefix): value for name, value in from_file.items() if name.startswith(prefix)})


def _read(spec: SettingSpec, text: str, origin: str, *, folder: Path) -> str | int | bool | Path:
    """Return the value of a setting, converted from text."""
    if spec.choices:
        return _choice(spec, text, origin)
    match spec.kind:
        case "number":
            return _whole_number(spec, text, origin)
        case "bool":
            return _boolean(spec, text, origin)
        case "file":
            return str((folder / Path(text).expanduser()).resolve()) if text else ""
        case "folder":
            return (folder / text).resolve()
    return text


def _choice(spec: SettingSpec, text: str, origin: str) -> str:
    choices = {choice.lower(): choice for choice in spec.choices} | ({} if spec.default else {"": ""})
    if text.lower() not in choices:
        raise SettingsError(
            f'invalid value "{text}" for {spec.name}',
            where=origin,
            next_step=f"Set it to one of: {', '.join(spec.choices)}.",
        )
    return choices[text.lower()]


def _whole_number(spec: SettingSpec, text: str, origin: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 1:
        raise SettingsError(
            f'{spec.name} must be a whole number above 0, not "{text}"',
            where=origin,
            next_step=f"Set {spec.name} to a number such as {spec.default or 1}.",
        )
    return number


def _boolean(spec: SettingSpec, text: str, origin: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SettingsError(
            f'{spec.name} must be true or false, not "{text}"',
            where=origin,
            next_step=f"Set {spec.name} to true or false.",
        )
    return text.lower() == "true"


def _derived_defaults(values: Mapping[str, Any]) -> dict[str, str | bool]:
    """Return the defaults that depend on other values."""
    home = values["home"]
    uses_sasl = bool(values["kafka_bootstrap_servers"] and values["kafka_username"])
    return {
        "kafka_security_protocol": "SASL_SSL" if uses_sasl else "PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN" if uses_sasl else "",
        "catalog_uri": f"sqlite:///{home / 'catalog.db'}" if values["catalog_type"] == "sql" else "",
        "warehouse": f"file://{home / 'warehouse'}",
        "s3_path_style": bool(values["s3_endpoint"]),
    }
