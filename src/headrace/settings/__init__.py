"""Settings: where Headrace keeps its state, and which servers it connects to.

A value comes from a flag, else from the environment, else from `headrace.toml`, else from the default. Settings are read
once, at the start of a command, and passed down. `values.py` lists all of them.
"""

from headrace.settings.addresses import passwords_in, without_passwords
from headrace.settings.load import load_settings
from headrace.settings.profile import FILE, LOCAL, STACK, read_profile
from headrace.settings.setting_specs import SENSITIVE
from headrace.settings.values import ADDRESS_FIELDS, PASSED_ON_SECTIONS, REDACTED, SECRETS, SETTING_SPECS, Settings

__all__ = [
    "ADDRESS_FIELDS",
    "FILE",
    "LOCAL",
    "PASSED_ON_SECTIONS",
    "REDACTED",
    "SECRETS",
    "SENSITIVE",
    "SETTING_SPECS",
    "STACK",
    "Settings",
    "load_settings",
    "passwords_in",
    "read_profile",
    "without_passwords",
]
