"""Epsilon-greedy exploration: one falling rate, or a ladder of rates over the lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mario_ddqn.config import ExplorationConfig
from mario_ddqn.randomness import get_random, set_random


class Exploration:
    """Turns greedy actions into explored ones for some of a run's lanes."""

    def __init__(
        self,
        config: ExplorationConfig,
        *,
        lanes: range,
        lane_count: int,
        action_count: int,
        random: np.random.Generator,
    ) -> None:
        """`lanes` are those of this object, of `lane_count` in the run."""
        self._config = config
        self._action_count = action_count
        self._random = random
        share = np.array(lanes) / max(1, lane_count - 1)
        self._ladder = config.ladder_base ** (1 + config.ladder_slope * share)
        # ez-greedy: the action that is held, and for how many more steps.
        self._held = np.zeros(len(lanes), np.int64)
        self._left = np.zeros(len(lanes), np.int64)
        number = np.array(lanes)
        spread = np.floor((number + 1) * config.sticky_share) > np.floor(
            number * config.sticky_share
        )
        self._sticky = np.where(spread, config.sticky, 0.0)
        # The action before, -1: none yet in this episode.
        self._last = np.full(len(lanes), -1, np.int64)
        weights = 1 / np.arange(1, config.repeat_max + 1) ** 2
        self._repeat_odds = np.cumsum(weights / weights.sum())

    def rates(self, step: int) -> np.ndarray:
        """Each lane's exploration rate at a step of the run: float64 [lanes]."""
        if self._config.kind == "ladder":
            return self._ladder
        return np.full(len(self._ladder), exploration_rate(self._config, step))

    def choose(self, greedy: np.ndarray, step: int) -> np.ndarray:
        """int64 [lanes]: the greedy action, a random one, or one that is held or sticks."""
        count = len(greedy)
        starts = (self._random.random(count) < self.rates(step)) & (self._left == 0)
        actions = self._random.integers(self._action_count, size=count)
        repeats = 1 + np.searchsorted(self._repeat_odds, self._random.random(count), side="right")
        self._held = np.where(starts, actions, self._held)
        self._left = np.where(starts, np.minimum(repeats, self._config.repeat_max), self._left)
        explores = self._left > 0
        self._left = np.maximum(self._left - 1, 0)
        actions = np.where(explores, self._held, greedy)
        sticks = (self._random.random(count) < self._sticky) & (self._last >= 0)
        self._last = np.where(sticks, self._last, actions)
        return self._last

    def end_episode(self, lane: int) -> None:
        """An action does not reach into the next episode; `lane` counts this object's lanes."""
        self._left[lane] = 0
        self._last[lane] = -1

    def get_state(self) -> dict[str, Any]:
        """What is held, the last actions, and the random generator."""
        return {
            "held": self._held.tolist(),
            "left": self._left.tolist(),
            "last": self._last.tolist(),
            "random": get_random(self._random),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self._held = np.array(state["held"], np.int64)
        self._left = np.array(state["left"], np.int64)
        self._last = np.array(state["last"], np.int64)
        set_random(self._random, state["random"])


def exploration_rate(config: ExplorationConfig, step: int) -> float:
    """The run's rate after `step` steps; of a ladder, its first (highest) lane's."""
    if config.kind == "ladder":
        return config.ladder_base
    rate = config.exploration_rate * config.exploration_rate_decay**step
    return max(config.exploration_rate_min, rate)
