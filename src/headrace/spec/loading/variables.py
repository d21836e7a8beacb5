"""Fill in `${VAR}` and `${VAR:-default}` in the text values of a pipeline, as a shell does."""

from __future__ import annotations

import re
from collections.abc import Mapping

PATTERN = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<fallback>:-(?P<default>[^}]*))?\}|\$\{[^}]*\}?")
"""A variable, or `$${`, which stands for a plain `${`, or an invalid variable."""


class VariableError(ValueError):
    """A text with an invalid or unset variable: what is wrong, and what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with every variable replaced.

    As in a shell, the default after `:-` also replaces a variable that is set but empty. An invalid variable, or an unset one
    without a default, raises a VariableError.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise VariableError(
                f'"{match[0]}" is not a valid variable', "Write ${NAME} or ${NAME:-default}, or $${ for a plain ${"
            )
        value = environ.get(name)
        if match["fallback"] is not None:
            return value or default
        if value is None:
            raise VariableError(
                f"the environment variable {name} is not set", f"Set {name}, or write a default: ${{{name}:-…}}"
            )
        return value

    return PATTERN.sub(fill, text)
