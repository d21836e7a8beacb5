"""The commerce pipeline's server as a process, without a broker.

It is started by `python -m tests.support.webhook_server PORT [HEADER_SECONDS]`.
"""

from __future__ import annotations

import sys

from headrace.http.server import ServerLimits, make_server, run_server
from headrace.sources.receiving import app_with
from headrace.sources.webhooks import STANDARD
from tests.support.webhooks import SECRETS, KeptProducer, commerce


class ForgettingProducer(KeptProducer):
    async def send(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        """Acknowledges at once, and forgets."""


if __name__ == "__main__":
    app = app_with(ForgettingProducer(), commerce(), environ=SECRETS, limits=STANDARD)
    limits = ServerLimits(header_seconds=float(sys.argv[2])) if len(sys.argv) > 2 else ServerLimits()
    run_server(make_server(app, port=int(sys.argv[1]), limits=limits))
