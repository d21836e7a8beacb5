"""Check which ports of this machine are free, and which program uses a port."""

from __future__ import annotations

import socket
import time

import psutil

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port.

    Tries to connect and to bind, because systems differ in what a bind detects.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        if client.connect_ex((HOST, port)) == 0:
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def becomes_free(port: int, *, within: float = 1.0) -> bool:
    """Return whether a port is free or becomes free in time: a killed server keeps its port until its last thread ends."""
    deadline = time.monotonic() + within
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def find_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


def describe_holder(port: int) -> str:
    """Return which program listens on a port, such as ` by java (pid 7)`; empty if it is not known."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""
