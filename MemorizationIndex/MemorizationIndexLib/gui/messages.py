"""What the worker says: bytes → messages, and how long it will still take. No Qt here."""

from __future__ import annotations

import json
from typing import Any

MOST_PENDING = 1 << 20
"""Bytes without a line end that are kept: more is no message."""


class LineReader:
    """Cuts a stream of bytes into messages; what is no message is kept as text.

    Attributes:
        other: Lines that are no messages, decoded as far as they can be.
    """

    def __init__(self) -> None:
        self.other: list[str] = []
        self._pending = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take the next bytes, cut anywhere, and return the messages they complete."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > MOST_PENDING:
            self._pending = b""
        messages = []
        for line in lines:
            message = _message(line)
            if message is not None:
                messages.append(message)
            elif line.strip():
                self.other.append(line.decode("utf-8", "replace").rstrip())
        return messages


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    if isinstance(message, dict) and isinstance(message.get("type"), str):
        return message
    return None


class TimeLeft:
    """Estimates from the pace so far how long a stage will still take.

    A stage that others interrupt (pictures are gathered after each volume) keeps its pace.
    """

    def __init__(self) -> None:
        self._begin: dict[str, tuple[float, int]] = {}

    def update(self, now: float, stage: str, done: int, total: int) -> float | None:
        """Take a report and return the seconds left; None where there is too little to go by."""
        began, first = self._begin.get(stage, (now, done))
        if done <= first:
            began, first = self._begin[stage] = (now, done)
        elapsed, step = now - began, done - first
        if elapsed < 1.0 or step <= 0 or total <= 0:
            return None
        return elapsed / step * max(total - done, 0)


def duration_in_words(seconds: float) -> str:
    """Return a duration, rounded as people say it: "20 s", "about 3 min", "about 2 h"."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 55:
        return f"about {round(seconds / 10) * 10} s"
    if seconds < 55 * 60:
        return f"about {max(round(seconds / 60), 1)} min"
    return f"about {round(seconds / 3600, 1):g} h"
