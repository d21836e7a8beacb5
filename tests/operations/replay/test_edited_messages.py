"""Export refused messages as JSON lines, edit them by hand, and read them back."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import SettingsError
from headrace.operations.replay.edited_messages import read_lines, to_lines

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def refused(*values: bytes | None) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "stream": "shelf.things",
                "partition": 0,
                "offset": index,
                "timestamp": AT,
                "reason": "bad",
                "original_bytes": value,
            }
            for index, value in enumerate(values)
        ]
    )


def read(path: Path, *lines: str) -> dict[str, dict[tuple[int, int], bytes]]:
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_lines(path, encode=lambda stream, event: f"{stream} {sorted(event)}".encode())


def test_read_lines_returns_the_bytes_of_unchanged_lines(tmp_path: Path) -> None:
    values = [b'{"name": "\xc3\xa9"', b"\xff\x00", b""]
    lines = to_lines(refused(*values))
    assert [sorted(json.loads(line).keys() & {"text", "base64"}) for line in lines] == [["text"], ["base64"], ["text"]]
    messages = read(tmp_path / "refused.jsonl", *lines, "")
    assert messages == {"shelf.things": {(0, index): value for index, value in enumerate(values)}}


def test_read_lines_encodes_an_event_in_the_streams_format(tmp_path: Path) -> None:
    line = json.dumps({"stream": "shelf.things", "partition": 1, "offset": 7, "event": {"b": 1, "a": 2}})
    assert read(tmp_path / "events.jsonl", line) == {"shelf.things": {(1, 7): b"shelf.things ['a', 'b']"}}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "the line is not JSON"),
        ('{"partition": 0, "offset": 1, "text": ""}', "not an object with stream, partition and offset"),
        ('{"stream": "s", "partition": 0, "offset": 1}', "needs exactly one of text, base64 and event"),
        (
            '{"stream": "s", "partition": 0, "offset": 1, "text": "", "base64": ""}',
            "needs exactly one of text, base64 and event",
        ),
        ('{"stream": "s", "partition": 0, "offset": 1, "txt": ""}', "unknown key txt"),
        ('{"stream": "s", "partition": 0, "offset": 1, "base64": "%"}', "can't encode base64"),
        ('{"stream": "s", "partition": 0, "offset": 1, "event": []}', "can't encode event"),
    ],
)
def test_read_lines_names_an_invalid_line(tmp_path: Path, line: str, says: str) -> None:
    good = '{"stream": "s", "partition": 0, "offset": 0, "text": ""}'
    with pytest.raises(SettingsError, match=says) as error:
        read(tmp_path / "edited.jsonl", good, line)
    assert error.value.where.endswith("edited.jsonl:2")
    with pytest.raises(SettingsError, match="twice"):
        read(tmp_path / "edited.jsonl", good, good)
