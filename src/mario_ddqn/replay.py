"""The replay memory: samples transitions out of the lanes' rings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mario_ddqn.frames import Frames
from mario_ddqn.rings import FINAL, FIRST, TERMINATED, Rings
from mario_ddqn.samplers import Sampler

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
    `weights` float32 [batch] are what each counts in the loss; None: all 1.
    `margins` float32 [batch] are how far the action's value shall be above all
    others; 0: no matter; None: all 0.
    `lanes` and `slots`, int64 [batch], are where they lie in the rings.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_observations: torch.Tensor
    discounts: torch.Tensor
    weights: torch.Tensor | None = None
    margins: torch.Tensor | None = None
    lanes: np.ndarray | None = None
    slots: np.ndarray | None = None


def least_capacity(stack: int, n_step: int) -> int:
    """Slots a lane must have for transitions to be kept."""
    return stack + n_step + 2 * _WRITER_MARGIN


class ReplayMemory:
    """Stacks of frames and n-step returns (Sutton & Barto, section 7.1) out of the rings.

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
        sampler: Sampler,
        device: torch.device,
    ) -> None:
        """`device` is where batches are wanted."""
        if rings.capacity < least_capacity(stack, n_step):
            raise ValueError(f"a capacity of {rings.capacity} slots a lane is too small")
        self._rings = rings
        self._stack = stack
        self._n_step = n_step
        self._powers = (gamma ** np.arange(n_step + 1)).astype(np.float32)
        self._sampler = sampler
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
        """Draws transitions, as the sampler chooses.

        Raises:
            ValueError: the memory is empty.
        """
        low, high = self._ranges()
        if not (high > low).any():
            raise ValueError("the replay memory is empty")
        lanes, slots, weights = self._sampler.draw(batch_size, low, high)
        batch = self.gather(lanes, slots)
        if weights is not None:
            batch.weights = torch.from_numpy(weights).to(self._device)
        return batch

    def learned(self, batch: Batch, errors: np.ndarray) -> None:
        """An update has learned from `batch` with absolute errors float32 [batch]."""
        assert batch.lanes is not None
        assert batch.slots is not None
        self._sampler.learned(batch.lanes, batch.slots, errors)

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
            lanes=lanes,
            slots=slots,
        )

    def get_state(self) -> dict[str, Any]:
        """The sampler's; the transitions are saved by replay_store.py."""
        return self._sampler.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self._sampler.set_state(state)

    def _ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """First slot and slot after the last that a transition may start in, by lane."""
        heads = self._frames.refresh()
        # Once round, the oldest slots have lost the frames before them.
        kept = self._rings.capacity - self._stack - _WRITER_MARGIN
        low = np.where(heads < self._rings.capacity - _WRITER_MARGIN, 0, heads - kept)
        floors = self._rings.floors
        low = np.maximum(low, np.where(floors > 0, floors + self._stack - 1, 0))
        return low, np.maximum(heads - self._n_step + 1, low)

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
