"""The Grafana dashboard uses existing metrics and labels, and every metric."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.serving.metrics import ABOUT, LABELS, PHASE, PHASE_LABELS, RUNNING

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "headrace.json"


def test_dashboard_uses_all_metrics_and_only_known_labels() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    named = {name for query in queries for name in re.findall(r"\bheadrace_\w+", query)}
    known = {RUNNING, PHASE, *ABOUT} - {"headrace_checkpoint", "headrace_bad_rows"}  # the second is for older dashboards
    assert named == known
    labels = {name for query in queries for name in re.findall(r"(\w+)\s*(?:=~|!=|=)", query)}
    assert labels <= {*LABELS, *PHASE_LABELS}
    legends = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"{{(\w+)}}", target["legendFormat"])
    }
    assert legends <= {*LABELS, *PHASE_LABELS}
