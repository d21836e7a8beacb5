"""Avro blocks with any bytes are read or refused without a word on stderr."""

from __future__ import annotations

import os

import polars as pl
import pytest

from headrace.kafka.records import container_file, container_header, read_container

HEADER = container_header('{"type": "record", "name": "message", "fields": [{"name": "f0", "type": "string"}]}')


def block_of(*messages: bytes) -> bytes:
    return container_file(HEADER, len(messages), sum(map(len, messages)), messages)[0]


def test_read_container_returns_rows() -> None:
    assert read_container(block_of(b"\x02a", b"\x04bc"))["f0"].to_list() == ["a", "bc"]


def test_read_container_keeps_the_text_of_a_panic_off_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pl.exceptions.PanicException):
        read_container(block_of(b"not avro"))
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_read_container_passes_other_text_on(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = pl.read_avro

    def read_beside_a_thread_that_logs(source: object) -> pl.DataFrame:
        os.write(2, b"a log line\n")
        return read(source)  # type: ignore[arg-type]

    monkeypatch.setattr(pl, "read_avro", read_beside_a_thread_that_logs)
    assert read_container(block_of(b"\x02a")).height == 1
    assert capfd.readouterr().err == "a log line\n"
