"""TensorBoard scalars."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Curves:
    """Scalars of a run, in files that TensorBoard reads.

    Its library writes in a thread, which a full disk ends: then a new one is
    begun at the next try.
    """

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """What an earlier process wrote after `start_step` is marked as replaced."""
        self._folder = folder
        self._next_step = start_step + 1
        self._writer: SummaryWriter | None = None
        self._old_hook = threading.excepthook
        threading.excepthook = self._thread_ended

    def add(self, scalars: dict[str, float], step: int) -> None:
        """Appends a point to each curve.

        Raises:
            OSError: of this or an earlier call: the disk is full, or the folder gone.
        """
        self._next_step = step
        try:
            if self._writer is None:
                self._writer = self._open()
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
        except OSError:
            self._writer = None
            raise

    def close(self) -> None:
        """Writes what is waiting.

        Raises:
            OSError: see `add`.
        """
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._writer = None
            threading.excepthook = self._old_hook

    def _open(self) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._folder), purge_step=self._next_step, flush_secs=10)

    def _thread_ended(self, ended: threading.ExceptHookArgs) -> None:
        # The library raises it again at the next call, where it is told in one line.
        if not issubclass(ended.exc_type, OSError):
            self._old_hook(ended)
