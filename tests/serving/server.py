"""An application that can be stopped and restarted on the same port."""

from __future__ import annotations

import socket
from threading import Thread

import uvicorn
from fastapi import FastAPI

from tests.support.waiting import wait_until


class Server:
    def __init__(self, app: FastAPI) -> None:
        self._app = app
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(self._app, port=self.port, log_level="error", timeout_graceful_shutdown=1)
        server = self._server = uvicorn.Server(config)
        self._thread = Thread(target=server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: server.started, what="the server to listen")

    def stop(self) -> None:
        if self._server and self._thread:
            self._server.should_exit = True
            self._thread.join(10)
            self._server = self._thread = None
