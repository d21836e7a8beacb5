"""The commerce pipeline's server as a process, without a broker: `python -m tests.webhook_server PORT`."""

from __future__ import annotations

import sys

import uvicorn

from headrace.sources.receiving import app_with
from headrace.sources.webhooks import STANDARD
from tests.webhooks import SECRETS, KeptProducer, commerce


class ForgettingProducer(KeptProducer):
    async def send(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        """Acknowledges at once, and forgets."""


if __name__ == "__main__":
    app = app_with(ForgettingProducer(), commerce(), environ=SECRETS, limits=STANDARD)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
