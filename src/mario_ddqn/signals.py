"""Ctrl-C, SIGTERM and a closed terminal ask a run to end well; a second one ends it at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


class StopRequest:
    """While entered, the first such signal sets `signal_number` and gives back the old handlers."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._old: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is not None:
                self._old[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    @property
    def requested(self) -> bool:
        """A signal has come."""
        return self.signal_number is not None

    def _request(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        while self._old:
            number, handler = self._old.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]
