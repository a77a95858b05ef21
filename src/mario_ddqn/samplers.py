"""Which transitions of the replay memory an update learns from: all alike, or by priority."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from mario_ddqn.config import ReplayConfig
from mario_ddqn.randomness import get_random, set_random
from mario_ddqn.rings import FINAL, Rings
from mario_ddqn.sum_tree import SumTree

# Added to errors, so that no transition is never drawn again.
_LEAST_ERROR = 0.01


class Sampler(Protocol):
    """Draws the slots that transitions start in."""

    def draw(
        self, count: int, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(lanes, slots, weights): int64 [count] twice; float32 [count], or None: all 1.

        A transition may start in the slots from `low` to below `high`, int64
        [lanes], of which there is at least one.
        """

    def learned(self, lanes: np.ndarray, slots: np.ndarray, errors: np.ndarray) -> None:
        """What was drawn has been learned from with these absolute errors, float32 [count]."""

    def get_state(self) -> dict[str, Any]:
        """All there is to go on from this moment."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""


def make_sampler(config: ReplayConfig, rings: Rings, random: np.random.Generator) -> Sampler:
    """The sampler a configuration asks for."""
    if config.priority == 0:
        return UniformSampler(rings, random)
    return PrioritisedSampler(rings, random, alpha=config.priority, beta=config.importance)


class UniformSampler:
    """Every transition alike."""

    def __init__(self, rings: Rings, random: np.random.Generator) -> None:
        self._rings = rings
        self._random = random

    def draw(
        self, count: int, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        ends = np.cumsum(high - low)
        total = int(ends[-1])
        lanes = np.empty(count, np.int64)
        slots = np.empty(count, np.int64)
        wanted = np.arange(count)
        while len(wanted):
            draw = self._random.integers(total, size=len(wanted))
            lane = np.searchsorted(ends, draw, side="right")
            slot = high[lane] - (ends[lane] - draw)
            lanes[wanted], slots[wanted] = lane, slot
            final = self._rings.flags[lane, slot % self._rings.capacity] & FINAL
            wanted = wanted[final != 0]
        return lanes, slots, None

    def learned(self, lanes: np.ndarray, slots: np.ndarray, errors: np.ndarray) -> None:
        del lanes, slots, errors

    def get_state(self) -> dict[str, Any]:
        return {"random": get_random(self._random)}

    def set_state(self, state: dict[str, Any]) -> None:
        set_random(self._random, state["random"])


class PrioritisedSampler:
    """In proportion to error^alpha (Schaul et al. 2016, the proportional variant).

    New transitions have the highest priority there was, so that each is learned
    from soon. Weights are (n * probability)^-beta, those of a batch scaled so
    that the largest is 1 (section 3.4).
    """

    def __init__(
        self, rings: Rings, random: np.random.Generator, *, alpha: float, beta: float
    ) -> None:
        self._rings = rings
        self._random = random
        self._alpha = alpha
        self._beta = beta
        self._tree = SumTree(rings.lanes * rings.capacity)
        self._highest = 1.0
        # Slots the tree knows, by lane.
        self._low = np.zeros(rings.lanes, np.int64)
        self._high = np.zeros(rings.lanes, np.int64)

    def draw(
        self, count: int, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        self._follow(low, high)
        tree, capacity = self._tree, self._rings.capacity
        leaves = np.empty(count, np.int64)
        wanted = np.arange(count)
        while len(wanted):
            # A draw each from equal parts of the sum: less chance, the same odds.
            parts = (wanted + self._random.random(len(wanted))) * (tree.total / count)
            leaves[wanted] = np.minimum(tree.find(parts), tree.size - 1)
            # Rounding may end in a leaf of none.
            wanted = wanted[tree.leaves[leaves[wanted]] == 0]
        lanes, places = np.divmod(leaves, capacity)
        slots = high[lanes] - 1 - (high[lanes] - 1 - places) % capacity
        odds = tree.leaves[leaves] / tree.total
        weights = (int((high - low).sum()) * odds) ** -self._beta
        return lanes, slots, (weights / weights.max()).astype(np.float32)

    def learned(self, lanes: np.ndarray, slots: np.ndarray, errors: np.ndarray) -> None:
        priorities = ((errors + _LEAST_ERROR) ** self._alpha).astype(np.float32)
        self._highest = max(self._highest, float(priorities.max()))
        # Those that the ring has overwritten since are others now.
        there = slots >= self._low[lanes]
        leaves = lanes * self._rings.capacity + slots % self._rings.capacity
        self._tree.set(leaves[there], priorities[there])

    def _follow(self, low: np.ndarray, high: np.ndarray) -> None:
        """Takes in what was added to the rings, and out what is gone."""
        for lane in np.flatnonzero((low != self._low) | (high != self._high)).tolist():
            gone = np.arange(self._low[lane], min(low[lane], self._high[lane]))
            # After a resume there may be less than the tree knew.
            lost = np.arange(max(high[lane], self._low[lane]), self._high[lane])
            self._set(lane, np.concatenate([gone, lost]), 0.0)
            new = np.arange(max(low[lane], min(self._high[lane], high[lane])), high[lane])
            final = self._rings.flags[lane, new % self._rings.capacity] & FINAL
            self._set(lane, new, np.where(final, 0.0, self._highest))
        self._low, self._high = low.copy(), high.copy()

    def _set(self, lane: int, slots: np.ndarray, priorities: Any) -> None:
        if len(slots):
            capacity = self._rings.capacity
            self._tree.set(lane * capacity + slots % capacity, priorities)

    def get_state(self) -> dict[str, Any]:
        return {
            "random": get_random(self._random),
            "priorities": self._tree.leaves.astype(np.float32),
            "highest": self._highest,
            "low": self._low.tolist(),
            "high": self._high.tolist(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        set_random(self._random, state["random"])
        priorities = np.asarray(state.get("priorities", ()))
        # Of a memory dealt out to other lanes all count as new.
        if len(priorities) == self._tree.size and len(state["low"]) == self._rings.lanes:
            self._tree.set(np.arange(self._tree.size), priorities)
            self._highest = state["highest"]
            self._low, self._high = np.array(state["low"]), np.array(state["high"])
