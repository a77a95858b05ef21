"""Checkpoints: written so that no crash can spoil them, read so that none can run code."""

from __future__ import annotations

import dataclasses
import io
import pickle
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mario_ddqn.errors import UserError
from mario_ddqn.files import remove_leftovers, write_atomically
from mario_ddqn.frames import Frames
from mario_ddqn.migrations import FORMAT, migrate
from mario_ddqn.replay_store import ReplayStore
from mario_ddqn.rings import Rings

SUFFIX = ".chkpt"
BEST = f"best{SUFFIX}"
FIRST_FLAG = f"first-flag{SUFFIX}"
_REQUIRED = {
    "format": int,
    "version": str,
    "config": str,
    "agent": dict,
    "steps": int,
    "episodes": int,
    "exploration_rate": float,
}
# What zipfile and torch.load raise for files that are no sound checkpoint.
_UNREADABLE = (
    RuntimeError,
    ValueError,
    EOFError,
    KeyError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)
# A checkpoint of the largest network allowed stays far below.
_MAX_BYTES = 4_000_000_000


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint without running any code in it; tensors on the CPU.

    Raises:
        UserError: it is missing, truncated, no checkpoint, or of a newer format.
    """
    advice = "give a .chkpt file or a run folder"
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a checkpoint; {advice}")
    try:
        _check_zip(path)
        payload: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: cannot read the checkpoint ({reason}); {advice}") from error
    except _UNREADABLE as error:
        raise UserError(f"{path}: damaged, or no checkpoint of mario-train; {advice}") from error
    if not _is_ours(payload):
        raise UserError(f"{path}: no checkpoint of mario-train; {advice}")
    found = payload["format"]
    try:
        migrate(payload)
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path}: has format {found}, this version reads 1 to {FORMAT}; update mario-train"
        ) from error
    return payload


def write_checkpoint(path: Path, payload: dict[str, Any]) -> None:
    """Writes a checkpoint of the present format, whole or not at all.

    Raises:
        OSError: the disk is full or the folder gone; an earlier file is untouched.
    """
    # Not straight into the file: torch makes other errors of a full disk now and then.
    content = io.BytesIO()
    torch.save({"format": FORMAT, **payload}, content)
    write_atomically(path, content.getbuffer())


def _is_ours(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return False
    kinds_right = all(isinstance(payload.get(key), kind) for key, kind in _REQUIRED.items())
    return kinds_right and isinstance(payload["agent"].get("model"), dict)


def _check_zip(path: Path) -> None:
    """Refuses archives that are damaged or would unpack to more than they should."""
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
            raise UserError(f"{path}: unpacks to more than 4 GB; not a checkpoint of mario-train")
        broken = archive.testzip()
        if broken is not None:
            raise UserError(f"{path}: damaged (checksum of {broken})")


def find_checkpoint(
    path: Path, *, prefer_best: bool = False
) -> tuple[Path, dict[str, Any], list[str]]:
    """The checkpoint that a file or run folder stands for: (path, content, what was unreadable).

    In a folder it is the newest that can be read, or with `prefer_best` the best.

    Raises:
        UserError: there is none.
    """
    if not path.is_dir():
        return path, load_checkpoint(path), []
    candidates = sorted(path.glob(f"step-*{SUFFIX}"), reverse=True)
    extra = [path / BEST, path / FIRST_FLAG]
    candidates = [*extra[:1], *candidates, *extra[1:]] if prefer_best else [*candidates, *extra]
    passed_over: list[str] = []
    for candidate in candidates:
        if candidate.exists():
            try:
                return candidate, load_checkpoint(candidate), passed_over
            except UserError as error:
                passed_over.append(str(error))
    details = f" ({passed_over[0]})" if passed_over else ""
    raise UserError(f"{path}: no readable checkpoint in this folder{details}")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a checkpoint will hold, taken at one moment of the training loop."""

    payload: dict[str, Any]
    steps: int
    heads: np.ndarray
    name: str | None


class Checkpointer:
    """Writes snapshots in the background, keeps the newest few, never touches the last good one.

    A failed save (full disk, folder gone) is reported and tried again at the next.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        rings: Rings,
        frames: Frames,
        save_replay: bool,
        report: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._rings = rings
        self._frames = frames
        self._store = ReplayStore(folder / "replay") if save_replay else None
        self._report = report
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting: list[Snapshot] = []
        # The segments of the two newest checkpoints stay on disk.
        self._manifests: list[dict[str, Any]] = []
        remove_leftovers(folder)
        remove_leftovers(folder / "replay")

    def resumed_from(self, payload: dict[str, Any]) -> None:
        """The memory of the checkpoint a run goes on from is kept until newer ones are safe."""
        if payload.get("replay"):
            self._manifests = [payload["replay"]]

    @property
    def busy(self) -> bool:
        """A save is under way."""
        with self._lock:
            return self._thread is not None

    def save(
        self, payload: dict[str, Any], *, steps: int, name: str | None = None, wait: bool = False
    ) -> None:
        """Writes `step-<steps>.chkpt`, with the replay memory beside it, or `name`, without.

        Only weights and counts are copied here; with `wait` the call returns when
        all is on the disk, otherwise a thread writes on. A snapshot that waits
        for its turn gives way to a newer one of its name.
        """
        snapshot = Snapshot(detached(payload), steps, self._rings.heads.copy(), name)
        with self._lock:
            self._waiting = [other for other in self._waiting if other.name != name]
            self._waiting.append(snapshot)
            thread = self._thread
            if thread is None:
                thread = threading.Thread(target=self._write_waiting, name="checkpoint")
                self._thread = thread
                thread.start()
        if wait:
            thread.join()

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                snapshot = self._waiting.pop(0)
            self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if snapshot.name is not None:
                write_checkpoint(self._folder / snapshot.name, snapshot.payload)
            else:
                self._write_with_replay(snapshot)
        except OSError as error:
            self._report(
                f"checkpoint at step {snapshot.steps:,} not saved ({error.strerror or error}: "
                f"{self._folder}); training goes on, the next is tried as planned"
            )

    def _write_with_replay(self, snapshot: Snapshot) -> None:
        payload = snapshot.payload
        if self._store is not None:
            payload["replay"] = self._store.save(self._rings, self._frames, snapshot.heads)
        write_checkpoint(self._folder / f"step-{snapshot.steps:012d}{SUFFIX}", payload)
        if self._store is not None:
            self._manifests = [*self._manifests[-1:], payload["replay"]]
            self._store.prune(self._manifests)
        for old in sorted(self._folder.glob(f"step-*{SUFFIX}"))[: -self._keep]:
            old.unlink(missing_ok=True)


def detached(value: Any) -> Any:
    """A copy that training does not change: tensors and arrays become tensors on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [detached(item) for item in value]
    return value
