"""The choices of `--replaced-topic`."""

from __future__ import annotations

from enum import Enum


class ReplacedTopic(str, Enum):
    """What to do with a topic that was replaced.

    RESTART lands the new topic from its beginning and keeps the rows of the earlier one. CONTINUE lands from the recorded
    offsets: for a restored or mirrored topic, which has the same messages at the same offsets.
    """

    RESTART = "restart"
    CONTINUE = "continue"
