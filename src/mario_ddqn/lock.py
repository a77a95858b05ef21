"""One training a folder: a lock file that a crash does not leave locked."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from types import TracebackType

import psutil

from mario_ddqn.errors import UserError

LOCK_FILE = "lock"
# Clocks of the process table are rounded.
_SAME_START_SECONDS = 2.0


class RunLock:
    """Held while a run is trained; tells by process and host who holds it.

    A lock whose process is gone, or whose number another process has got since,
    is stale and taken over.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE

    def __enter__(self) -> RunLock:
        """Takes the lock.

        Raises:
            UserError: another training holds it.
        """
        process = psutil.Process()
        me = {"pid": process.pid, "host": socket.gethostname(), "started": process.create_time()}
        while True:
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                self._refuse_unless_stale()
                self._path.unlink(missing_ok=True)
                continue
            except OSError as error:
                raise UserError(
                    f"{self._path}: cannot be written ({error.strerror}); "
                    "mend the folder, or take another with --runs"
                ) from error
            with os.fdopen(descriptor, "w") as file:
                json.dump(me, file)
            return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The folder may have gone meanwhile.
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _refuse_unless_stale(self) -> None:
        try:
            holder = json.loads(self._path.read_text())
            pid, host, started = int(holder["pid"]), str(holder["host"]), float(holder["started"])
        except (OSError, ValueError, KeyError, TypeError):
            # Gone meanwhile, or cut off by a crash while it was written.
            return
        if host == socket.gethostname():
            try:
                if abs(psutil.Process(pid).create_time() - started) > _SAME_START_SECONDS:
                    return
            except psutil.NoSuchProcess:
                return
            advice = "wait for it to end, or stop it"
        else:
            advice = f"stop it there; if it is gone for good, delete {self._path}"
        raise UserError(
            f"{self._path.parent}: process {pid} on {host} trains in this folder; {advice}"
        )
