"""Where the replay memory's frames lie: in the rings themselves, or on the GPU."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from mario_ddqn.rings import Rings

# Slots a lane has in RAM for what is not yet on the GPU: 7 MB at 84x84.
GPU_WINDOW = 1024


class Frames(Protocol):
    """The frames of all slots of some rings."""

    def refresh(self) -> np.ndarray:
        """Takes in what the lanes have written; returns the newest slot of each, int64 [lanes]."""

    def gather(self, index: np.ndarray) -> torch.Tensor:
        """Frames by lane * capacity + place: int64 [n, stack] to uint8 [n, stack, height, width].

        On the device the learner computes on.
        """

    def read(self, lane: int, slots: np.ndarray) -> np.ndarray:
        """Frames of slots of a lane: uint8 [slots, height, width]."""

    def write(self, lane: int, slots: np.ndarray, frames: np.ndarray) -> None:
        """Puts frames back that were saved; `heads` of the rings must be set before."""


class RamFrames:
    """The frames stay where the lanes have put them; batches travel to the learner's device."""

    def __init__(self, rings: Rings, device: torch.device) -> None:
        self._rings = rings
        self._device = device
        self._flat = rings.frames.reshape(-1, *rings.frames.shape[2:])

    def refresh(self) -> np.ndarray:
        return self._rings.heads.copy()

    def gather(self, index: np.ndarray) -> torch.Tensor:
        # NumPy copies a frame at a time; torch's indexing a byte at a time, 15 times slower.
        frames = torch.from_numpy(self._flat.take(index, axis=0))
        if self._device.type == "cuda":
            return frames.pin_memory().to(self._device, non_blocking=True)
        return frames.to(self._device)

    def read(self, lane: int, slots: np.ndarray) -> np.ndarray:
        frames: np.ndarray = self._rings.frames[lane, slots % self._rings.capacity]
        return frames

    def write(self, lane: int, slots: np.ndarray, frames: np.ndarray) -> None:
        self._rings.frames[lane, slots % self._rings.capacity] = frames


class GpuFrames:
    """The frames lie on the learner's device; the rings hold only a window of the newest.

    The lanes must not write further ahead of `refresh` than the window reaches.
    """

    def __init__(self, rings: Rings, device: torch.device) -> None:
        self._rings = rings
        self._device = device
        shape = (rings.lanes * rings.capacity, *rings.frames.shape[2:])
        self._flat = torch.zeros(shape, dtype=torch.uint8, device=device)
        # By lane: slots before it are on the device.
        self._copied = np.zeros(rings.lanes, np.int64)

    def refresh(self) -> np.ndarray:
        heads = self._rings.heads.copy()
        for lane in np.flatnonzero(heads > self._copied):
            slots = np.arange(self._copied[lane], heads[lane])
            self._copy(int(lane), slots, self._rings.frames[lane, slots % self._rings.window])
        self._copied = heads
        # The head's own frame follows when its action is known.
        return heads - 1

    def gather(self, index: np.ndarray) -> torch.Tensor:
        flat_index = torch.from_numpy(index.ravel()).to(self._device, non_blocking=True)
        return self._flat.index_select(0, flat_index).view(*index.shape, *self._flat.shape[1:])

    def read(self, lane: int, slots: np.ndarray) -> np.ndarray:
        # First of all, for the learner copies on while a checkpoint is written. What
        # has not been copied yet is still in the window, and so is the head.
        newer = slots >= self._copied[lane]
        places = torch.from_numpy(lane * self._rings.capacity + slots % self._rings.capacity)
        frames: np.ndarray = self._flat[places.to(self._device)].cpu().numpy()
        frames[newer] = self._rings.frames[lane, slots[newer] % self._rings.window]
        return frames

    def write(self, lane: int, slots: np.ndarray, frames: np.ndarray) -> None:
        self._copy(lane, slots, frames)
        head = int(self._rings.heads[lane])
        self._copied[lane] = head
        recent = slots > head - self._rings.window
        self._rings.frames[lane, slots[recent] % self._rings.window] = frames[recent]

    def _copy(self, lane: int, slots: np.ndarray, frames: np.ndarray) -> None:
        places = torch.from_numpy(lane * self._rings.capacity + slots % self._rings.capacity)
        data = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device, non_blocking=True)
        self._flat[places.to(self._device)] = data
