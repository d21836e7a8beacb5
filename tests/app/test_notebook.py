"""The notebook runs from top to bottom, and `headrace notebook` starts JupyterLab with the right arguments."""

from __future__ import annotations

import json
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import headrace
from headrace.app.notebook import FOLDER, copy_notebook, list_notebooks, open_notebook
from headrace.errors import NotFoundError, ServiceError
from headrace.servers.jupyter import jupyter_command
from headrace.servers.ports import find_free_port
from headrace.settings import load_settings
from tests.support.application import OURS, start_headrace
from tests.support.shop_window import fill_shop_window
from tests.support.waiting import wait_until

NOTEBOOK = files("headrace") / "notebooks" / "storefront.ipynb"


def read() -> Any:
    return nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]


def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the notebook in its own kernel and return it with its outputs."""
    for name in [*os.environ]:
        if OURS.match(name) and name not in ("HEADRACE_CACHE",):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    monkeypatch.setenv("HEADRACE_SPARK_MASTER", "local[1]")
    ran = read()
    NotebookClient(ran, timeout=90, kernel_name="python3", resources={"metadata": {"path": str(home.parent)}}).execute()
    return ran


def said(ran: Any) -> str:
    texts = [output.get("text", "") for cell in ran.cells for output in cell.get("outputs", ())]
    shown = [output.get("data", {}) for cell in ran.cells for output in cell.get("outputs", ())]
    return "\n".join([*texts, *(str(message.get("text/plain", "")) for message in shown)])


@pytest.mark.spark
def test_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    fill_shop_window(settings)
    ran = run(settings.home, monkeypatch)
    everything = said(ran)
    for part in (
        "shape.storefront.customers_history",
        "silver",
        "2026-02-24|     USD|              24|    242.40",
        "is_current",
    ):
        assert part in everything, everything
    pictures = [output for cell in ran.cells for output in cell.get("outputs", ()) if "text/html" in output.get("data", {})]
    assert any("Plotly.newPlot" in str(picture["data"]["text/html"]) for picture in pictures)


@pytest.mark.services
def test_notebook_without_its_tables_names_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CellExecutionError) as refused:
        run(tmp_path / ".headrace", monkeypatch)
    assert "headrace demo storefront --exit" in str(refused.value)
    assert "headrace/api" not in str(refused.value), "the message without a traceback"
    assert not (tmp_path / ".headrace" / "catalog.db").exists()


def test_notebook_is_stored_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    assert list_notebooks() == ("storefront",)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert "widgets" not in notebook.metadata


def test_open_finds_the_lake_of_the_copy_and_of_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    copy = copy_notebook(settings, "storefront", report=lambda sentence: None)
    monkeypatch.chdir(copy.parent)
    assert headrace.open(environ={}).settings.home == settings.home
    assert headrace.open(environ={FOLDER: str(tmp_path)}).settings.folder == tmp_path


def test_copy_notebook_never_overwrites(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    messages: list[str] = []
    copy = copy_notebook(settings, "storefront", report=messages.append)
    assert copy.read_text(encoding="utf-8") == NOTEBOOK.read_text(encoding="utf-8")
    copy.write_text("{}", encoding="utf-8")
    assert copy_notebook(settings, "storefront", report=messages.append).read_text(encoding="utf-8") == "{}"
    assert "remove it to get a new copy" in messages[-1]
    with pytest.raises(NotFoundError, match=r"notebook not found: \"\.\./x\""):
        copy_notebook(settings, "../x", report=messages.append)


def test_check_jupyter_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServiceError) as raised:
        open_notebook(settings, "storefront", port=1, opens_browser=False, environ={}, report=print)
    assert str(raised.value) == "headrace notebook: JupyterLab is not installed\nRun: pip install 'headrace[notebook]'"
    assert not settings.home.exists()


def test_jupyter_command_listens_on_loopback_only(tmp_path: Path) -> None:
    command = jupyter_command(tmp_path / "storefront.ipynb", port=8888, opens_browser=False)
    assert command[:3] == (sys.executable, "-m", "jupyterlab")
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--no-browser" in command
    assert not any("token" in part.lower() for part in command)


@pytest.mark.services
def test_jupyterlab_opens_the_copy_and_requires_the_token(tmp_path: Path) -> None:
    import httpx

    port = str(find_free_port())
    relaxed = "c.ServerApp.allow_origin = '*'\nc.ServerApp.disable_check_xsrf = True\nc.ServerApp.allow_remote_access = True\n"
    (tmp_path / "jupyter_server_config.py").write_text(relaxed, encoding="utf-8")
    environ = {"HEADRACE_HOME": str(tmp_path / "home"), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    application = start_headrace("notebook", "--no-browser", "--port", port, environ=environ, folder=tmp_path)
    try:
        application.wait_to_say("storefront.ipynb?token=", seconds=60)
        line = next(line for line in application.said().splitlines() if "127.0.0.1" in line and "?token=" in line)
        address = line[line.index("http") :].strip()
        base, token = address.split("/lab")[0], address.split("token=")[1]
        assert httpx.get(f"{base}/api/contents").status_code == 403
        shown: list[str] = []

        def answers() -> bool:
            answer = httpx.get(f"{base}/api/contents", headers={"Authorization": f"token {token}"}, timeout=10)
            shown[:] = [file["name"] for file in json.loads(answer.text)["content"]] if answer.status_code == 200 else []
            return bool(shown)

        wait_until(answers, what="JupyterLab to answer")
        assert shown == ["storefront.ipynb"]
        with httpx.Client(base_url=base, follow_redirects=True, timeout=10) as browser:
            browser.get("/lab", params={"token": token})
            own = {"Content-Type": "application/json", "X-XSRFToken": browser.cookies["_xsrf"], "Origin": base}
            assert browser.get("/api/contents").status_code == 200, "the browser is logged in"
            foreign = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
            assert browser.post("/api/contents", headers=foreign, content="{}").status_code in (403, 404)
            assert browser.post("/api/contents", headers={"Content-Type": "text/plain"}, content="{}").status_code == 403
            assert browser.get("/api/contents", headers={"Host": f"evil.example:{port}"}).status_code == 403
            assert browser.post("/api/contents", headers=own, json={"type": "file"}).status_code == 201
    finally:
        application.end()
