"""The body budget counts bytes until they have left the memory."""

from __future__ import annotations

import asyncio

from headrace.sources.body_budget import BodyBudget


def test_body_budget_counts_a_dropped_body_until_its_task_ends() -> None:
    async def attack() -> list[str]:
        budget = BodyBudget(total=100, free=0, slow_after=0.01)
        events: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.1)  # a task that is slow to end, as on a busy machine
                events.append("the first body is out of memory")

        async def first() -> None:
            with budget.share() as share:
                await budget.take(share, 100)
                share.task = asyncio.ensure_future(_as_body(slow()))
                await asyncio.wait([share.task])
                assert share.is_dropped

        async def second() -> None:
            with budget.share() as share:
                await budget.take(share, 60)
                events.append("the second body has room")
                assert budget.used == 60

        sending = asyncio.ensure_future(first())
        await asyncio.sleep(0.05)
        await second()
        await sending
        assert budget.used == 0
        return events

    assert asyncio.run(attack()) == ["the first body is out of memory", "the second body has room"]


async def _as_body(waiting: object) -> bytes | None:
    await waiting  # type: ignore[misc]
    return None
