"""What there is to say of one setting: how it is set, what it is for, how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_type_hints

Kind = Literal["text", "number", "bool", "file", "folder", "web", "postgres", "database", "secret", "handed on"]
"""`web`, `postgres` and `database` are addresses, which may have a password in them. A `secret` comes from the environment
alone. `handed on` is a section whose names are another program's."""

SENSITIVE = "(?i)secret|password|passwd|credential|token|access[._-]?key|jaas"
"""What the name of a property that holds a secret has in it, as Spark too understands it."""

ADDRESSES: tuple[Kind, ...] = ("web", "postgres", "database")


@dataclass(frozen=True)
class SettingSpec:
    """One value that can be set. With the default None the value is None where nothing is set."""

    default: str | None
    about: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    variable: str = ""
    """The environment variable, where its name does not follow from the field's."""
    password: str = ""
    """The variable that an address's password can come from instead."""
    empty: str = ""
    """What `headrace doctor` shows where there is no value."""
    field: str = ""

    @property
    def name(self) -> str:
        """The name in the file: that of `kafka_sasl_mechanism` is `kafka.sasl_mechanism`."""
        return self.field.replace("_", ".", 1)

    @property
    def environ(self) -> str:
        """The environment variable: that of `kafka_port` is `HEADRACE_KAFKA_PORT`."""
        return self.variable or f"HEADRACE_{self.field.upper()}"


def known_of(values: type) -> tuple[SettingSpec, ...]:
    """Return what a class's annotations say of its fields, in their order."""
    hints = get_type_hints(values, include_extras=True)
    return tuple(replace(each, field=field) for field, hint in hints.items() for each in getattr(hint, "__metadata__", ()))
