"""What the training loop asks of whoever gathers its experience."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mario_ddqn.actor import Episode
from mario_ddqn.evaluate import Evaluation


@dataclass
class Collected:
    """New steps in the rings, the episodes that ended, and an evaluation that was asked for."""

    steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    evaluation: Evaluation | None = None


class Collector(Protocol):
    """Gathers experience into the rings."""

    def collect(self, step: int, limit: float) -> Collected:
        """Plays on from the run's `step`, not past `limit` by more than a batch of lanes."""

    def publish(self) -> None:
        """The network has changed."""

    def evaluate(self) -> None:
        """Has the network as it is now evaluated; the result comes with a later `collect`."""

    def actor_seconds(self) -> list[np.ndarray]:
        """For each actor where its time went, by ACTOR_PARTS."""

    def get_state(self) -> dict[str, Any]:
        """All it needs to go on."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""

    def close(self) -> None:
        """Frees environments and processes."""
