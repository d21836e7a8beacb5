"""The picture of a pipeline: no overlaps, and every line runs from left to right."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from headrace.serving.web.flow import NODE_HEIGHT, NODE_WIDTH, Flow, draw_flow, ends_of
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from headrace.spec.sql.lineage import trace_lineage
from tests.support.shop import write_shop


@pytest.mark.parametrize("name", ["shop", *(pipeline.name for pipeline in list_pipelines(BUILT_IN))])
def test_draw_flow_has_no_overlaps(tmp_path: Path, name: str) -> None:
    write_shop(tmp_path)
    pipeline = load_pipeline(name, environ={}, folder=tmp_path)
    flow = draw_flow(trace_lineage(pipeline), ends=ends_of(pipeline))
    names = {place.name for place in flow.places}
    assert names >= {str(stream.table) for stream in pipeline.streams} | {str(table.table) for table in pipeline.tables}
    assert {f"topic {stream.topic}" for stream in pipeline.streams} == {
        place.name for place in flow.places if place.kind == "topic"
    }
    inputs = {(str(read), str(table.table)) for table in pipeline.tables for read in table.inputs}
    assert {(line.source, line.target) for line in flow.lines} >= inputs
    assert {f"postgres {table.name}" for table in pipeline.serving.postgres} <= names
    _check_places(flow)
    _check_lines(flow)


def _check_places(flow: Flow) -> None:
    for place, other in combinations(flow.places, 2):
        assert abs(place.x - other.x) >= NODE_WIDTH or abs(place.y - other.y) >= NODE_HEIGHT - 1e-6, (place, other)
    assert min(place.x for place in flow.places) == 0
    assert max(place.x for place in flow.places) + NODE_WIDTH == flow.width
    assert max(place.y for place in flow.places) + NODE_HEIGHT <= flow.height + 1e-6


def _check_lines(flow: Flow) -> None:
    places = {place.name: place for place in flow.places}
    for line in flow.lines:
        assert all(after[0] > before[0] for before, after in pairwise(line.points))
        assert line.points[0] == (places[line.source].x + NODE_WIDTH, places[line.source].y + NODE_HEIGHT / 2)
        assert line.points[-1] == (places[line.target].x, places[line.target].y + NODE_HEIGHT / 2)
        for x, y in line.points[1:-1]:
            assert not any(place.x < x < place.x + NODE_WIDTH and place.y < y < place.y + NODE_HEIGHT for place in flow.places)
