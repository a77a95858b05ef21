"""Where the seconds go: one clock a process, whose laps are booked on parts of the work."""

from __future__ import annotations

import time

import numpy as np

LEARNER_PARTS = ("collect", "sample", "update", "publish", "wait", "rest")
ACTOR_PARTS = ("network", "environment", "evaluation", "wait", "rest")


class Profile:
    """Books the time since the last booking on a part; some 100 ns a call, so always on."""

    def __init__(self, parts: tuple[str, ...], seconds: np.ndarray | None = None) -> None:
        """`seconds`, float64 [parts], may lie in shared memory."""
        self._index = {part: number for number, part in enumerate(parts)}
        self.seconds = np.zeros(len(parts)) if seconds is None else seconds
        self._last = time.perf_counter()

    def book(self, part: str) -> None:
        """The time since the last call went into `part`."""
        now = time.perf_counter()
        self.seconds[self._index[part]] += now - self._last
        self._last = now


def profile_lines(name: str, parts: tuple[str, ...], seconds: np.ndarray) -> list[str]:
    """A line a part: seconds and share of the process's time."""
    total = float(seconds.sum()) or 1.0
    lines = [f"{name}: {total:.1f} s"]
    lines += [
        f"  {part:<12}{spent:8.1f} s {spent / total:6.1%}"
        for part, spent in zip(parts, seconds.tolist(), strict=True)
    ]
    return lines
