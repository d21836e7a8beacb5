"""The command `headrace`: each command parses, calls one function and prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Optional

import typer

from headrace import __version__
from headrace.cli.asking import commits, export_dbt, lineage, quality, query, serve, verify
from headrace.cli.flow import build, demo, generate, land, plan, receive, run
from headrace.cli.folders import check, new
from headrace.cli.forgetting import forget
from headrace.cli.servers import clean, doctor, down, logs, status, up
from headrace.cli.shared import err, out
from headrace.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help="A streaming lakehouse: Kafka topics land exactly once in Apache Iceberg, and become tables of tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
export = typer.Typer(help="Write a pipeline for other tools.", no_args_is_help=True, rich_markup_mode=None)
export.command("dbt")(export_dbt)
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(demo, new, check, up, down, status, logs, generate, receive, land, run, build, plan),
    *(serve, quality, query, lineage, commits, verify, forget, doctor, clean),
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(export, name="export")


def main() -> None:
    """Runs the command line; an error of ours becomes its message and exit code."""
    try:
        app(standalone_mode=True)
    except HeadraceError as error:
        err.print(str(error), style="bold red" if err.is_terminal else None, highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    profile: Annotated[Optional[str], typer.Option(help="the section of headrace.toml to use")] = None,
) -> None:
    if version:
        out.print(__version__, highlight=False)
        raise typer.Exit
    if profile:
        os.environ["HEADRACE_PROFILE"] = profile
