"""Collecting in the learner's own process: slower than actor processes, and deterministic."""

from __future__ import annotations

from typing import Any

import numpy as np

from mario_ddqn.actor import Actor
from mario_ddqn.collect import Collected
from mario_ddqn.evaluate import Evaluation, GreedyActions


class InlineCollector:
    """Steps an actor between the updates; the same seed gives the same run."""

    def __init__(self, actor: Actor, greedy_actions: GreedyActions) -> None:
        self._actor = actor
        self._greedy_actions = greedy_actions
        self._evaluation: Evaluation | None = None

    def collect(self, step: int, limit: float) -> Collected:
        """One agent step in every lane, unless the run is past `limit`."""
        evaluation, self._evaluation = self._evaluation, None
        if step >= limit:
            return Collected(evaluation=evaluation)
        self._actor.profile.book("wait")
        episodes = self._actor.step(self._greedy_actions, step)
        return Collected(self._actor.lanes, episodes, evaluation)

    def publish(self) -> None:
        """The actor uses the learner's network itself."""

    def evaluate(self) -> None:
        """Plays the evaluation at once."""
        self._evaluation = self._actor.evaluate(self._greedy_actions)

    def actor_seconds(self) -> list[np.ndarray]:
        """Of the one actor; its waiting is the learner's work."""
        return [self._actor.profile.seconds]

    def get_state(self) -> dict[str, Any]:
        """Where the actor is, in the middle of its episodes."""
        return self._actor.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self._actor.set_state(state)

    def close(self) -> None:
        """Closes the environments."""
        self._actor.close()
