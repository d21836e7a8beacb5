"""The final search finds a person at any depth and in any file, and no other person."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.operations.erase.identifiers import identify
from headrace.operations.erase.search import Target, needle_of, search_file

ANN = identify(emails=["Ann@example.com"], phones=["+1 555 0100 123"], ids=[("shop", "7000000000001"), ("shop", "17")])


def columns_found(path: Path, **values: object) -> dict[str, int]:
    target = Target("a.table", f"file://{path}", **values)  # type: ignore[arg-type]
    return {hit.column: hit.count for hit in search_file(target, needle_of(ANN))}


VALUES = {
    "text": pa.array(["ann@EXAMPLE.com", "joann@example.com"]),
    "phone": pa.array(["call +1 555 0100 123", "15550100123"]),
    "bytes": pa.array([b"\xff{ann@example.com", b"bob"]),
    "struct": pa.array([{"a": {"b": "x"}}, {"a": {"b": "to ann@example.com"}}]),
    "list": pa.array([["x", "ann@example.com"], []]),
    "map": pa.array([[("ann@example.com", "x")], []], pa.map_(pa.string(), pa.string())),
    "dictionary": pa.array(["ann@example.com", "x"]).dictionary_encode(),
    "id": pa.array(["7000000000001", "27000000000001"]),
    "number": pa.array([7000000000001, 1]),
}


@pytest.mark.parametrize("name", VALUES)
def test_search_file_finds_the_person_in_columns_of_any_type(tmp_path: Path, name: str) -> None:
    path = tmp_path / "part-1.parquet"
    pq.write_table(pa.table({name: VALUES[name], "other": ["bob", "17"]}), path)
    assert columns_found(path) == {name: 2 if name == "phone" else 1}


def test_search_file_finds_nothing_in_clean_files(tmp_path: Path) -> None:
    path = tmp_path / "part-1.parquet"
    pq.write_table(pa.table({"text": ["joann@example.com", "17", None], "n": [17, 1, None]}), path)
    assert columns_found(path) == {}


def test_search_file_ignores_rows_of_other_pipelines(tmp_path: Path) -> None:
    path = tmp_path / "part-1.parquet"
    pq.write_table(pa.table({"stream": ["mine.a", "yours.b"], "text": ["x", "ann@example.com"]}), path)
    assert columns_found(path, column="stream", values=frozenset({"mine.a"})) == {}
    assert columns_found(path, column="stream", values=frozenset({"yours.b"})) == {"text": 1}


def test_search_file_reports_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "part-1.parquet"
    path.write_bytes(b"PAR1 half a file")
    assert columns_found(path) == {"(unreadable)": 1}


def test_search_file_searches_metadata_and_file_names(tmp_path: Path) -> None:
    manifest, text = tmp_path / "m.avro", tmp_path / "v1.metadata.json"
    schema = {"type": "record", "name": "e", "fields": [{"name": "bound", "type": "bytes"}]}
    with manifest.open("wb") as file:
        fastavro.writer(file, schema, [{"bound": b"ann@example.com"}], codec="deflate")
    text.write_text('{"sample": "{\\\\"email\\\\": \\\\"ann@example.com\\\\"}"}')
    assert columns_found(manifest) == columns_found(text) == {"(metadata)": 1}
    path = tmp_path / "email=ann%40example.com" / "part-1.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"n": [1]}), path)
    assert columns_found(path) == {"(the file's name)": 1}
