"""The spec of a setting: how it is set, what it is for, how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_type_hints

Kind = Literal["text", "number", "bool", "file", "folder", "web", "postgres", "database", "secret", "handed on"]
"""`web`, `postgres` and `database` are addresses, which may contain a password. A `secret` comes only from the environment.
`handed on` is a section whose names belong to another program."""

SENSITIVE = "(?i)secret|password|passwd|credential|token|access[._-]?key|jaas"
"""A pattern for names of properties that hold a secret, valid in Python and in Spark's redaction."""

ADDRESSES: tuple[Kind, ...] = ("web", "postgres", "database")


@dataclass(frozen=True)
class SettingSpec:
    """The spec of a setting. With the default None, the value is None if it is not set."""

    default: str | None
    about: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    variable: str = ""
    """The environment variable, if its name does not follow from the field."""
    password: str = ""
    """The environment variable that can hold the password of an address instead."""
    empty: str = ""
    """What `headrace doctor` shows for an empty value."""
    field: str = ""

    @property
    def name(self) -> str:
        """The name in the file, such as `kafka.sasl_mechanism` for the field `kafka_sasl_mechanism`."""
        return self.field.replace("_", ".", 1)

    @property
    def environ(self) -> str:
        """The environment variable, such as `HEADRACE_KAFKA_PORT` for the field `kafka_port`."""
        return self.variable or f"HEADRACE_{self.field.upper()}"


def specs_of(values: type) -> tuple[SettingSpec, ...]:
    """Return the specs in a class's annotations, in the order of its fields."""
    hints = get_type_hints(values, include_extras=True)
    return tuple(replace(spec, field=field) for field, hint in hints.items() for spec in getattr(hint, "__metadata__", ()))
