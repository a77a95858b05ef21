"""Collecting in the learner's own process: slower than actor processes, and deterministic."""

from __future__ import annotations

from typing import Any

from mario_ddqn.actor import Actor, Episode, GreedyActions


class InlineCollector:
    """Steps an actor between the updates; the same seed gives the same run."""

    def __init__(self, actor: Actor, greedy_actions: GreedyActions) -> None:
        self._actor = actor
        self._greedy_actions = greedy_actions

    def collect(self, step: int, limit: float) -> tuple[int, list[Episode]]:
        """One agent step in every lane, unless the run is past `limit`."""
        if step >= limit:
            return 0, []
        return self._actor.lanes, self._actor.step(self._greedy_actions, step)

    def publish(self) -> None:
        """The actor uses the learner's network itself."""

    def get_state(self) -> dict[str, Any]:
        """Where the actor is, in the middle of its episodes."""
        return self._actor.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self._actor.set_state(state)

    def close(self) -> None:
        """Closes the environments."""
        self._actor.close()
