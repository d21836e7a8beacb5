"""The Grafana dashboard asks for metrics and labels that there are, and for all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.serving.metrics import ABOUT, LABELS, PHASE, PHASE_LABELS, RUNNING

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "headrace.json"


def test_the_dashboard_asks_for_what_there_is() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    named = {name for query in queries for name in re.findall(r"\bheadrace_\w+", query)}
    known = {RUNNING, PHASE, *ABOUT} - {"headrace_checkpoint", "headrace_bad_rows"}  # the second is for older dashboards
    assert named == known
    labels = {name for query in queries for name in re.findall(r"(\w+)\s*(?:=~|!=|=)", query)}
    assert labels <= {*LABELS, *PHASE_LABELS}
    legends = {
        name
        for panel in dashboard["panels"]
        for each in panel["targets"]
        for name in re.findall(r"{{(\w+)}}", each["legendFormat"])
    }
    assert legends <= {*LABELS, *PHASE_LABELS}
