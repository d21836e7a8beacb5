"""What the commands share: the console, their common options, and the settings and pipelines that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from headrace.api.project import Project
from headrace.errors import HeadraceError, SettingsError, UnavailableError
from headrace.logs import set_up_logging
from headrace.settings import STACK, Settings, load_settings
from headrace.settings.private import protect_state
from headrace.spec import Pipeline, list_pipelines, load_pipeline
from headrace.terminal import TerminalConsole

if TYPE_CHECKING:
    from headrace.app.board import Board

# What is piped is not cut to the width of a terminal that isn't there.
out = TerminalConsole(width=None if sys.stdout.isatty() else 240)
err = TerminalConsole(stderr=True, width=None if sys.stderr.isatty() else 240)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="a pipeline's name, or the path of its folder")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
TableOption = Annotated[Optional[str], typer.Option("--table", help="one table, after its upstream tables")]
TakeOver = Annotated[bool, typer.Option("--take-over", help="start although another application holds this pipeline")]


@dataclass(frozen=True)
class ConsoleDisplay:
    """Prints messages, and shows a board on the terminal until Ctrl-C or SIGTERM."""

    report: Callable[[str], None]

    @contextmanager
    def live(self, title: str) -> Iterator[tuple[Board, Event]]:
        from headrace.app.board import live_board
        from headrace.sessions.landing import stop_on_signals

        with stop_on_signals() as stop, live_board(out, title=title) as board:
            yield board, stop


def project_here(*, report: Callable[[str], None] | None = None) -> Project:
    """Return the project of the folder where the command was typed. Messages go to `report`, by default the terminal."""
    return Project(settings_here(), environ=os.environ, display=ConsoleDisplay(report or say))


def settings_here() -> Settings:
    """Return the settings that hold where the command was typed; those of the profile `stack` lead to its servers, which
    have to run."""
    settings = home_settings()
    if settings.profile != STACK:
        return settings
    from headrace.servers.stack import stack_settings

    settings = stack_settings(settings)
    set_up_logging(settings)  # again: only now are the stack's secrets known, which lines must not have
    return settings


def settings_of_demo() -> Settings:
    """Return the settings that hold where the command was typed; the stack is started, where it is asked for."""
    settings = home_settings()
    if settings.profile == STACK:
        from headrace.servers.stack import start_stack

        start_stack(settings, report=say)
    return settings_here()


def settings_if_up() -> Settings:
    """Return the settings that hold where the command was typed, for a command that looks at what there is."""
    try:
        return settings_here()
    except UnavailableError:
        return home_settings()


def home_settings() -> Settings:
    """Return the settings that hold where the command was typed, for a command about the servers themselves.

    From here on, what the command creates is private (see settings/private.py), and its log lines go where the settings say.
    """
    settings = load_settings(flags={}, environ=os.environ, folder=Path.cwd())
    protect_state(settings)
    set_up_logging(settings)
    return settings


def load(name: str) -> Pipeline:
    """Return the pipeline that a name means where the command was typed."""
    return load_pipeline(name, environ=os.environ, folder=Path.cwd())


def load_all(settings: Settings) -> tuple[list[Pipeline], list[HeadraceError]]:
    """Return the pipelines of ./pipelines, or the built-in ones if it has none, and the errors of pipelines with mistakes.

    Raises the first error if all pipelines have one.
    """
    listed = list_pipelines(settings.folder)
    pipelines: list[Pipeline] = []
    errors: list[HeadraceError] = []
    for pipeline in [own for own in listed if not own.built_in] or listed:
        try:
            pipelines.append(load(pipeline.name))
        except HeadraceError as error:
            errors.append(error)
            say(f"{pipeline.name} is left out: {error}")
    if not pipelines:
        raise errors[0]
    return pipelines, errors


def refuse_both(**chosen: bool) -> None:
    """Raise a SettingsError if more than one of these options is set."""
    names = [f"--{name}" for name, is_chosen in chosen.items() if is_chosen]
    if len(names) > 1:
        raise SettingsError(f"{' and '.join(names)} are mutually exclusive", next_step="Pass one of them.")


def say(sentence: str) -> None:
    out.print(sentence, highlight=False, markup=False, soft_wrap=True)


def say_aside(sentence: str) -> None:
    """Say it where it is not in the way of what a script reads."""
    err.print(sentence, highlight=False, markup=False, soft_wrap=True)


def quiet(sentence: str) -> None:
    pass
