"""Render topics and their messages for a terminal, and as JSON for scripts."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.plurals import count_of
from headrace.printable import printable
from headrace.serving.values import as_text, print_json
from headrace.serving.web.topics import cut

if TYPE_CHECKING:
    from headrace.serving.web.message_text import Shown
    from headrace.serving.web.topics import ShownMessage, ShownSchemas, TopicStatus

_LONGEST = 2_000
_LONGEST_LINE = 200


def show_topics(console: Console, topics: Sequence[TopicStatus], *, as_json: bool) -> None:
    if as_json:
        print_json([_topic(topic) for topic in topics])
        return
    if not topics:
        console.print("No topics yet. headrace up, or the first run of a pipeline, creates them.", highlight=False)
        return
    table = Table("topic")
    for column in ("partitions", "messages", "to land"):
        table.add_column(column, justify="right")
    for column in ("stream", "lands in", "format"):
        table.add_column(column, overflow="fold")
    for status in topics:
        table.add_row(
            status.name,
            str(len(status.partitions)),
            f"{status.messages:,}",
            "\n".join(f"{reader.lag:,}" for reader in status.readers),
            "\n".join(reader.label for reader in status.readers),
            "\n".join(reader.table for reader in status.readers),
            "\n".join(reader.format for reader in status.readers),
        )
    console.print(table)
    for status in topics:
        _show_differences(console, status)


def show_topic(
    console: Console, topic: TopicStatus, schemas: ShownSchemas, messages: Sequence[ShownMessage], *, as_json: bool
) -> None:
    if as_json:
        _write_exactly(
            {
                **_topic(topic),
                "schemas": [{"origin": schema.origin, "schema": schema.text} for schema in schemas.schemas],
                "schemas_problem": schemas.problem,
                "messages": [_message(message) for message in messages],
            }
        )
        return
    _show_partitions(console, topic)
    for schema in schemas.schemas:
        _title(console, schema.origin)
        _print(console, schema.text)
    if schemas.problem:
        _print(console, schemas.problem, style="bold red")
    for message in messages:
        _show_message(console, message)
    if not messages:
        _print(console, "\nno messages")


def _show_partitions(console: Console, topic: TopicStatus) -> None:
    table = Table()
    lags = [f"{reader.label} lag" for reader in topic.readers]
    for column in ("partition", "oldest offset", "next offset", "messages", *lags):
        table.add_column(column, justify="right")
    for bounds in topic.partitions:
        waiting = (f"{bounds.lags[reader.label]:,}" for reader in topic.readers)
        table.add_row(str(bounds.partition), f"{bounds.low:,}", f"{bounds.high:,}", f"{bounds.high - bounds.low:,}", *waiting)
    console.print(table)
    for reader in topic.readers:
        _print(console, f"{reader.label} lands it in {reader.table}, as {reader.format}")
    if not topic.readers:
        _print(console, "no pipeline here lands it")
    _show_differences(console, topic)


def _show_differences(console: Console, topic: TopicStatus) -> None:
    for difference in topic.differences:
        _print(console, f"topic {topic.name}: {difference}", style="yellow")
    if topic.differences:
        _print(console, "Headrace sets these only when it creates a topic. Change the topic in Kafka, or pipeline.yml.")


def _show_message(console: Console, message: ShownMessage) -> None:
    _title(console, f"partition {message.partition} · offset {message.offset} · {as_text(message.at, null='no time')}")
    if message.key.form != "null":
        _print(console, f"key     {_line(message.key)}")
    for name, value in message.headers:
        _print(console, f"header  {name}: {_line(value)}")
    value = message.value
    if value.form in ("null", "empty"):
        _print(console, "value   null: a tombstone" if value.form == "null" else "value   empty")
        return
    facts = (value.form, value.schema, count_of(value.size, "byte"))
    _print(console, f"value   {' · '.join(fact for fact in facts if fact)}")
    if value.about:
        _print(console, f"change  {value.about}")
    if value.reason:
        _print(console, f"why     {value.reason}", style="bold red")
    text, note = cut(value, _LONGEST)
    _print(console, text)
    if note:
        _print(console, f"… {note}", style="dim")


def _line(shown: Shown) -> str:
    """Return a key or a header in one line."""
    if shown.form in ("null", "empty"):
        return shown.form
    text = " ".join(shown.text.split()) if shown.form in ("json", "avro") else shown.text
    note = f"… ({count_of(shown.size, 'byte')})" if len(text) > _LONGEST_LINE else ""
    return f"{text[:_LONGEST_LINE]}{note}" + (f"  ({shown.reason})" if shown.reason else "")


def _title(console: Console, text: str) -> None:
    console.print()
    _print(console, text, style="bold")


def _print(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True, highlight=False)


def _topic(status: TopicStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "messages": status.messages,
        "lag": status.lag,
        "differences": list(status.differences),
        "readers": [vars(reader) for reader in status.readers],
        "partitions": [
            {"partition": partition.partition, "low": partition.low, "high": partition.high, "lags": dict(partition.lags)}
            for partition in status.partitions
        ],
    }


def _message(message: ShownMessage) -> dict[str, object]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": as_text(message.at, null="") or None,
        "key": _part(message.key),
        "value": _part(message.value),
        "headers": [{"name": name, **_part(value)} for name, value in message.headers],
    }


def _part(shown: Shown) -> dict[str, object]:
    """Return a key or value for a script, untruncated: JSON as JSON, undecoded bytes in base64."""
    import msgspec

    notes = {"schema": shown.schema, "about": shown.about, "reason": shown.reason}
    part: dict[str, object] = {"form": shown.form, "size": shown.size, **{name: note for name, note in notes.items() if note}}
    if shown.form in ("json", "avro"):
        part["content"] = msgspec.Raw(shown.text.encode())
    elif shown.form == "bytes":
        part["bytes"] = base64.b64encode(shown.raw).decode()
    elif shown.form != "null":
        part["content"] = shown.text
    return part


def _write_exactly(value: Mapping[str, object]) -> None:
    """Print JSON that keeps every number of a message exactly as it came."""
    import msgspec

    sys.stdout.write(printable(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")
