"""The command `headrace`: each command parses, calls one function and prints."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from threading import Event
from typing import Annotated, Optional

import typer

from headrace.cli.commands.connectors import connectors
from headrace.cli.commands.erasing import erase
from headrace.cli.commands.flow import build, demo, generate, land, plan, publish, receive, run, serve_seeder
from headrace.cli.commands.folders import check, new, stage_config
from headrace.cli.commands.maintaining import maintain, register
from headrace.cli.commands.queries import (
    commits,
    export_airflow,
    export_dagster,
    export_dbt,
    lineage,
    notebook,
    quality,
    query,
    serve,
    topics,
    verify,
)
from headrace.cli.commands.replaying import replay
from headrace.cli.commands.servers import clean, doctor, down, env, logs, psql, status, up
from headrace.cli.commands.submitting import submit
from headrace.cli.shared import err, home_settings, out
from headrace.errors import HeadraceError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.logs import is_logging, log_trace
from headrace.version import __version__

_LOG = logging.getLogger(__name__)
_GLOBAL = ("--profile", "--log-level", "--log-format")


class LogLevel(str, Enum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(str, Enum):
    text = "text"
    json = "json"


app = typer.Typer(
    name="headrace",
    help="A streaming lakehouse: Kafka topics land exactly once in Apache Iceberg, and become tables of tables.",
    epilog="Exit codes: 0 done · 1 it failed, or something is not as it should be · 2 a wrong pipeline, setting or argument · "
    "3 another application holds the pipeline · 130 interrupted",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
export = typer.Typer(
    help="Write a pipeline for others: export dbt, airflow, dagster.", no_args_is_help=True, rich_markup_mode=None
)
export.command("dbt")(export_dbt)
export.command("airflow")(export_airflow)
export.command("dagster")(export_dagster)
seed = typer.Typer(help="Fill the database that a pipeline captures: seed serve.", no_args_is_help=True, rich_markup_mode=None)
seed.command("serve")(serve_seeder)
_INTERRUPTED = 130
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(demo, new, check, stage_config, up, down, status, logs, env, generate, receive, psql, land, run, submit),
    *(build, plan, publish, serve, quality, query, topics, notebook, lineage, commits, verify, replay, maintain),
    *(register, erase, doctor, clean),
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(connectors, name="connectors")
app.add_typer(export, name="export")
app.add_typer(seed, name="seed")
app.command("forget", hidden=True)(erase)  # the names of 0.1
app.command("seeder", hidden=True)(serve_seeder)


def main() -> None:
    """Run the command line; an error of ours becomes its message and exit code, and so does a catalog that is away."""
    interrupts = _note_interrupts()
    try:
        with translate_outages():
            app(_with_global_options_first(sys.argv[1:]), standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except Exception as error:
        unwritable = _describe_unwritable_home(error)
        if unwritable:  # the log is in there, too
            err.print(unwritable, highlight=False, markup=False, soft_wrap=True)
            sys.exit(1)
        _log_end(error, level=logging.DEBUG if isinstance(error, HeadraceError) else logging.ERROR)
        if interrupts.is_set():
            sys.exit(_INTERRUPTED)
        if not isinstance(error, HeadraceError):
            raise
        err.print(str(error), style="bold red" if err.is_terminal else None, highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _describe_unwritable_home(error: Exception) -> str:
    """Return what to do about an error of a file in Headrace's home folder; an empty text for other errors."""
    if not isinstance(error, OSError) or not error.filename:
        return ""
    home = home_settings().home
    if not Path(os.path.abspath(error.filename)).is_relative_to(home):
        return ""
    what = f"{error.filename}: {os.strerror(error.errno or 0)}\nHeadrace keeps its state in {home}: "
    return f"{what}see that it can be written, or set HEADRACE_HOME."


def _note_interrupts() -> Event:
    """Return an event that Ctrl-C sets: an interrupted call to Java ends with an error that doesn't say so."""
    interrupts = Event()

    def handle(number: int, frame: object) -> None:
        interrupts.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    return interrupts


def _log_end(error: Exception, *, level: int) -> None:
    """Log why a command ends; the terminal shows it to people. Logs nothing before logging is set up."""
    if is_logging():
        log_trace(_LOG, "the command failed", error, level=level)


def _with_global_options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of all commands, which may be typed after one, before the command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    first: list[str] = []
    others: list[str] = []
    at = 0
    while at < end:
        name, equals, _ = arguments[at].partition("=")
        size = 2 if name in _GLOBAL and not equals else 1
        (first if name in _GLOBAL else others).extend(arguments[at : min(at + size, end)])
        at += size
    return [*first, *others, *arguments[end:]]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    profile: Annotated[Optional[str], typer.Option(help="the section of headrace.toml to use")] = None,
    log_level: Annotated[
        Optional[LogLevel], typer.Option(case_sensitive=False, help="log to stderr from this level on", show_default=False)
    ] = None,
    log_format: Annotated[
        Optional[LogFormat], typer.Option(case_sensitive=False, help="log to stderr in this form", show_default=False)
    ] = None,
) -> None:
    if version:
        out.print(__version__, highlight=False)
        raise typer.Exit
    # Processes that a command starts, such as receivers, take over what was chosen.
    chosen = {"PROFILE": profile, "LOG_LEVEL": log_level and log_level.value, "LOG_FORMAT": log_format and log_format.value}
    os.environ.update({f"HEADRACE_{name}": value for name, value in chosen.items() if value})
