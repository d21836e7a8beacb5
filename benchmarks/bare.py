"""A FastAPI handler that does nothing, as a server: `python -m benchmarks.bare PORT`. Receiving is compared with it."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()


@app.get("/log")
async def log() -> dict[str, str]:
    return {"status": "success"}


@app.post("/webhooks/stripe")
async def stripe(request: Request) -> dict[str, str]:
    await request.body()
    return {"status": "accepted"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
