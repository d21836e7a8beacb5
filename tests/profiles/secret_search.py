"""Where secrets are looked for: processes, Spark's pages, files; and a small pipeline with a layer table to run meanwhile."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from headrace.spec.loading.folders import BUILT_IN

LATEST = """/*
keys: [uuid]
sequence_by: kafka_timestamp
*/
SELECT uuid, event_time, kafka_timestamp FROM secured.events
"""


def make_pipeline(folder: Path) -> None:
    """Write the pipeline `secured`: that of lineage, with a table that is built."""
    shutil.copytree(BUILT_IN / "lineage", folder)
    text = (folder / "pipeline.yml").read_text(encoding="utf-8")
    (folder / "pipeline.yml").write_text(
        text.replace("name: lineage", "name: secured").replace("lineage.events", "secured.events"), encoding="utf-8"
    )
    shutil.rmtree(folder / "sample")
    shutil.rmtree(folder / "expected")
    (folder / "staging").mkdir()
    (folder / "staging" / "latest_events.sql").write_text(LATEST, encoding="utf-8")


def command_lines() -> dict[str, str]:
    """Return the arguments of all processes, as anyone may list them."""
    return {f"process {one.pid}": " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])}


def read_page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode("utf-8"))


def pages_of(port: int) -> dict[str, str]:
    """Return what an application's own pages and its API say."""
    (application,) = json.loads(read_page(port, "/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    paths = ("/environment/", "/executors/", "/jobs/", "/SQL/", f"{api}/environment", f"{api}/allexecutors", f"{api}/jobs")
    return {path: read_page(port, path) for path in (*paths, f"{api}/sql?details=true&length=1000")}


def files_in(*folders: Path, but: Iterable[Path] = ()) -> Iterator[tuple[str, str]]:
    """Yield all files, hidden ones too, as texts that hold every byte; `but` are left out."""
    left_out = {*but}
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path not in left_out:
            yield str(path), path.read_bytes().decode("latin-1")


def found_in(texts: Mapping[str, str] | Iterable[tuple[str, str]], secrets: Iterable[str]) -> list[str]:
    """Return where a secret is, with what stands around it."""
    return [
        f"{name}: …{text[max(0, text.index(secret) - 300) : text.index(secret)]}"
        for name, text in (texts.items() if isinstance(texts, Mapping) else texts)
        for secret in secrets
        if secret in text
    ]
