"""Checkpoints of older formats, brought up to the present one.

A format that changes what a checkpoint holds gets the next number here, a
function that brings the one before up to it, and a file of its own in tests/data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FORMAT = 2


def migrate(payload: dict[str, Any]) -> None:
    """Brings the content of a checkpoint of any older format up to `FORMAT`, in place.

    Raises:
        KeyError: it is of a newer format, or of none there ever was.
    """
    while payload["format"] != FORMAT:
        _STEPS[payload["format"]](payload)
        payload["format"] += 1


def _from_1(payload: dict[str, Any]) -> None:
    """Format 2 has last actions (sticky actions), and the start states of actor processes."""
    collector = payload.get("collector")
    if collector is None:  # weights only
        return
    if "exploration" in collector:
        exploration = collector["exploration"]
        exploration["last"] = [-1] * len(exploration["left"])
    else:
        collector["start_states"] = {"cells": [], "states": []}


_STEPS: dict[int, Callable[[dict[str, Any]], None]] = {1: _from_1}
