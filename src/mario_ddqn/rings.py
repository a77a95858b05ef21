"""Where lanes write their steps: one ring of slots a lane, each frame stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FIRST = 1  # the slot's frame is the first of an episode
TERMINATED = 2  # the slot's action ended the episode for good
FINAL = 4  # the slot's frame is the last of an episode; no action was taken in it

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]


class Rings:
    """Steps of `lanes` environments.

    A slot holds a frame and what came of it: action, reward, flags. An episode
    of T steps takes T + 1 slots, one behind the other; the last has a frame
    only. Slots are counted from 0 without end; slot n of a lane lies at
    n % capacity. `heads[lane]` is the slot whose frame is there and whose action
    is not yet known; all before it are complete.

    Arrays: frames uint8 [lanes, window, height, width], actions uint8,
    rewards float32, flags uint8 [lanes, capacity], heads and floors int64 [lanes].
    Slots before `floors[lane]` are not there (a resumed run's lost memories).
    Every lane has one writer; readers in other processes look at `heads` first.
    """

    def __init__(
        self,
        lanes: int,
        capacity: int,
        frame_shape: tuple[int, int],
        allocate: Allocate = np.zeros,
        *,
        window: int | None = None,
    ) -> None:
        """`allocate(shape, dtype)` gives a zeroed array, in shared memory for example.

        With `window` frames are kept for so many of the newest slots only (see
        GpuFrames): slot n's frame lies at n % window.
        """
        self.lanes = lanes
        self.capacity = capacity
        self.window = window or capacity
        self.frames = allocate((lanes, self.window, *frame_shape), np.uint8)
        self.actions = allocate((lanes, capacity), np.uint8)
        self.rewards = allocate((lanes, capacity), np.float32)
        self.flags = allocate((lanes, capacity), np.uint8)
        self.heads = allocate((lanes,), np.int64)
        self.floors = allocate((lanes,), np.int64)

    def begin(self, lane: int, frame: np.ndarray) -> None:
        """An episode starts with `frame`."""
        self._put(lane, int(self.heads[lane]), frame, FIRST)

    def add(
        self,
        lane: int,
        action: int,
        reward: float,
        frame: np.ndarray,
        *,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """`action` in the lane's newest frame gave `reward` and the next `frame`.

        After `terminated` or `truncated` the next call must be `begin`.
        """
        head = int(self.heads[lane])
        at = head % self.capacity
        over = terminated or truncated
        self._put(lane, head + 1, frame, FINAL if over else 0)
        self.actions[lane, at] = action
        self.rewards[lane, at] = reward
        if terminated:
            self.flags[lane, at] |= TERMINATED
        self.heads[lane] = head + (2 if over else 1)

    def cut(self, lane: int) -> None:
        """Ends an episode that will not go on, as if it had been truncated after its last step."""
        head = int(self.heads[lane])
        at = head % self.capacity
        previous = self.flags[lane, (head - 1) % self.capacity]
        if head == 0 or previous & FINAL or self.flags[lane, at] & FIRST:
            return
        self.flags[lane, at] = FINAL
        self.heads[lane] = head + 1

    def _put(self, lane: int, slot: int, frame: np.ndarray, flags: int) -> None:
        self.frames[lane, slot % self.window] = frame
        self.flags[lane, slot % self.capacity] = flags
