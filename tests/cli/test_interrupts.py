"""Ctrl-C ends a command with exit code 130 and without a traceback, whatever error the interrupted call ends with."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JError

from headrace.cli import main
from headrace.errors import ServiceError


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o12.sql"),
        ServiceError("Spark ended", where="", next_step=""),
        OSError(9, "Bad file descriptor"),
    ],
)
def test_main_interrupted_within_a_call_to_java(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setitem(main.__globals__, "app", interrupted)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == ""


def test_main_raises_unexpected_errors_without_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object, **options: object) -> None:
        raise Py4JError("An error occurred while calling o12.sql")

    monkeypatch.setitem(main.__globals__, "app", failing)
    with pytest.raises(Py4JError):
        main()
