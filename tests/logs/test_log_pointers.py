"""A message that points to a log points to one that `headrace logs` knows."""

from __future__ import annotations

import re
from pathlib import Path

import headrace
from headrace.logs import FAILURE_LOGS, HEADRACE
from headrace.servers.stack import list_servers
from headrace.servers.status import SPARK
from headrace.settings import load_settings

_POINTER = re.compile(r"headrace(?: --profile stack)? logs ([a-z]+)\b")


def test_messages_point_to_logs_that_exist(tmp_path: Path) -> None:
    servers = [server.name for server in list_servers(load_settings(flags={}, environ={}, folder=tmp_path))]
    texts = [path.read_text(encoding="utf-8") for path in Path(headrace.__file__).parent.rglob("*.py")]
    named = {name for text in texts for name in _POINTER.findall(text)}
    assert named >= {"landing", "build", "maintenance", "spark"}
    assert named <= {*servers, SPARK, HEADRACE, *FAILURE_LOGS}
