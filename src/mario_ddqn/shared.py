"""Memory that processes share without names, semaphores or anything else to leak."""

from __future__ import annotations

import ctypes
import math
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np

from mario_ddqn.errors import UserError


class SharedArrays:
    """Arrays that a parent allocates and its spawned children find again, in the same order.

    They lie in anonymous shared memory (multiprocessing.RawArray: a file that is
    unlinked as soon as it is open), which the kernel frees with the last process,
    however that ends. Being zeroed, the memory is really there: what does not fit
    fails at start-up, not hours later.

    Pass the object to a child as an argument of its process; there `allocate`
    hands out the parent's arrays one after the other.
    """

    def __init__(self, context: SpawnContext) -> None:
        self._context: SpawnContext | None = context
        self._blocks: list[tuple[Any, tuple[int, ...], str]] = []
        self._next = 0

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """In the parent a zeroed array; in a child the array the parent got at this call.

        Raises:
            UserError: neither /dev/shm nor the temporary folder has room for it.
        """
        if self._context is None:
            block, known_shape, known_dtype = self._blocks[self._next]
            self._next += 1
            if (tuple(shape), np.dtype(dtype).str) != (known_shape, known_dtype):
                raise RuntimeError(f"shared array {self._next - 1} is {known_shape}, not {shape}")
        else:
            size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
            try:
                block = self._context.RawArray(ctypes.c_uint8, size)
            except OSError as error:
                raise UserError(
                    f"no room for {size / 1e9:.2f} GB of memory that processes share "
                    f"({error.strerror}): lower replay.maxlen, set TMPDIR to a larger folder, or "
                    "train in one process with train.actors=0"
                ) from error
            self._blocks.append((block, tuple(shape), np.dtype(dtype).str))
        array = np.frombuffer(block, dtype, math.prod(shape))
        return array.reshape(shape)

    def __getstate__(self) -> dict[str, Any]:
        return {"_context": None, "_blocks": self._blocks, "_next": 0}
