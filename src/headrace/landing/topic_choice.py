"""The choice that a user has when a topic was replaced."""

from __future__ import annotations

from enum import Enum


class ReplacedTopic(str, Enum):
    """What to do with a topic that was replaced.

    RESTART lands it from its beginning and keeps the rows that were landed from the earlier one. CONTINUE goes on at the
    recorded offsets, which is right for a topic that has the same messages at the same offsets: a restored or mirrored one.
    """

    RESTART = "restart"
    CONTINUE = "continue"
