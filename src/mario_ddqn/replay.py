"""The replay memory: samples transitions out of the lanes' rings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mario_ddqn.frames import Frames
from mario_ddqn.randomness import get_random, set_random
from mario_ddqn.rings import FINAL, FIRST, TERMINATED, Rings

# A writer in another process may be ahead of the heads read: slots so close
# behind it that it may reach them while a batch is gathered are left alone.
_WRITER_MARGIN = 16


@dataclass
class Batch:
    """Transitions of n steps, on the learner's device.

    `observations` and `next_observations` are uint8 [batch, stack, height,
    width], `actions` int64 [batch]. `rewards` float32 [batch] are the
    discounted sum over the steps; `discounts` float32 [batch] are what the value
    of the next observation counts: gamma^steps, and 0 after a terminal step.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_observations: torch.Tensor
    discounts: torch.Tensor


class ReplayMemory:
    """Uniform sampling of stacks and n-step returns (Sutton & Barto, section 7.1).

    A stack never reaches over the start of its episode: like FrameStack after a
    reset, it repeats the first frame. A return never reaches over its end: it
    stops at a terminal step, and at a truncation it asks the target network
    early.
    """

    def __init__(
        self,
        rings: Rings,
        frames: Frames,
        *,
        stack: int,
        n_step: int,
        gamma: float,
        random: np.random.Generator,
        device: torch.device,
    ) -> None:
        """`device` is where batches are wanted."""
        if rings.capacity < stack + n_step + 2 * _WRITER_MARGIN:
            raise ValueError(f"a capacity of {rings.capacity} slots a lane is too small")
        self._rings = rings
        self._stack = stack
        self._n_step = n_step
        self._powers = (gamma ** np.arange(n_step + 1)).astype(np.float32)
        self._random = random
        self._device = device
        self._frames = frames

    def __len__(self) -> int:
        """Transitions that can be sampled now, those at the episodes' ends counted in."""
        low, high = self._ranges()
        return int((high - low).sum())

    @property
    def capacity(self) -> int:
        """Slots of all lanes together."""
        return self._rings.lanes * self._rings.capacity

    def sample(self, batch_size: int) -> Batch:
        """Draws transitions uniformly.

        Raises:
            ValueError: the memory is empty.
        """
        lanes, slots = self._draw(batch_size)
        return self.gather(lanes, slots)

    def gather(self, lanes: np.ndarray, slots: np.ndarray) -> Batch:
        """The transitions that start in the given lanes and slots, int64 [batch] each."""
        rings = self._rings
        ends, rewards, discounts = self._returns(lanes, slots)
        index = np.concatenate([self._stacks(lanes, slots), self._stacks(lanes, ends)])
        frames = self._frames.gather(index)
        observations, next_observations = frames[: len(lanes)], frames[len(lanes) :]
        actions = rings.actions[lanes, slots % rings.capacity].astype(np.int64)
        return Batch(
            observations,
            torch.from_numpy(actions).to(self._device),
            torch.from_numpy(rewards).to(self._device),
            next_observations,
            torch.from_numpy(discounts).to(self._device),
        )

    def get_state(self) -> dict[str, Any]:
        """The random generator; the transitions are saved by replay_store.py."""
        return {"random": get_random(self._random)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        set_random(self._random, state["random"])

    def _ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """First slot and slot after the last that a transition may start in, by lane."""
        heads = self._frames.refresh()
        # Once round, the oldest slots have lost the frames before them.
        kept = self._rings.capacity - self._stack - _WRITER_MARGIN
        low = np.where(heads < self._rings.capacity - _WRITER_MARGIN, 0, heads - kept)
        floors = self._rings.floors
        low = np.maximum(low, np.where(floors > 0, floors + self._stack - 1, 0))
        return low, np.maximum(heads - self._n_step + 1, low)

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._ranges()
        ends = np.cumsum(high - low)
        total = int(ends[-1])
        if total == 0:
            raise ValueError("the replay memory is empty")
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
        return lanes, slots

    def _stacks(self, lanes: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Places of the frames of stacks ending in `slots`, oldest first: int64 [batch, stack]."""
        rings = self._rings
        index = np.empty((len(slots), self._stack), np.int64)
        slot = slots.copy()
        for column in range(self._stack - 1, -1, -1):
            place = slot % rings.capacity
            index[:, column] = lanes * rings.capacity + place
            slot -= (rings.flags[lanes, place] & FIRST) == 0
        return index

    def _returns(
        self, lanes: np.ndarray, slots: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(slot of the next observation, n-step return, discount of its value)."""
        rings = self._rings
        rewards = np.zeros(len(slots), np.float32)
        steps = np.zeros(len(slots), np.int64)
        running = np.ones(len(slots), bool)
        terminal = np.zeros(len(slots), bool)
        for power in self._powers[:-1]:
            place = (slots + steps) % rings.capacity
            flags = rings.flags[lanes, place]
            running &= (flags & FINAL) == 0
            rewards += np.where(running, power * rings.rewards[lanes, place], 0)
            steps += running
            terminal |= running & ((flags & TERMINATED) != 0)
            running &= ~terminal
        discounts = np.where(terminal, np.float32(0), self._powers[steps])
        return slots + steps, rewards, discounts
