"""The events of the lake that version 0.1 made, and the later ones: the same in every run."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from random import Random

TOPIC = "kept-events"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_KEYS, _GROUPS, _PEOPLE = 24, 4, 8
_PER_ROUND = 60
_BAD = (b'{"id": "cut', b'{"id": "x", "n": "many"}', b"")


def message_rounds(count: int) -> list[list[bytes]]:
    """Return rounds of messages as a producer sends them.

    Events come late and twice, change and delete rows, and share addresses; some amounts are negative, and some messages can't
    be decoded. The first rounds are the same whatever `count` is.
    """
    random, sent = Random(1), list[bytes]()
    rounds = []
    for number in range(count):
        events = [_event(random, number * _PER_ROUND + index) for index in range(_PER_ROUND)]
        again = random.sample(sent, 3) if sent else []
        messages = [*events, *again, *_BAD]
        random.shuffle(messages)
        rounds.append(messages)
        sent += events
    return rounds


def _event(random: Random, number: int) -> bytes:
    key = random.randrange(_KEYS)
    at = START + timedelta(minutes=number * 7 - random.choice((0, 0, 0, 300)))
    event = {
        "id": f"e{number}",
        "k": f"k{key}",
        "g": None if random.random() < 0.05 else f"g{random.randrange(_GROUPS)}",
        "n": number * 10 - random.choice((0, 0, 0, 250)),
        "amount": f"{random.randrange(-200, 20_000) / 100:.2f}",
        "op": "d" if random.random() < 0.15 else "u",
        "at": at.isoformat(),
        "email": f"Person{key % _PEOPLE}+{number}@example.org" if random.random() < 0.7 else f"k{key}@example.org",
    }
    return json.dumps(event).encode()
