"""The replay memory on disk: segments of a lane, written once, each with its checksum."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from mario_ddqn.files import replacing
from mario_ddqn.frames import Frames, RamFrames
from mario_ddqn.rings import FIRST, Rings

_MAGIC = b"MARIO-REPLAY-1\n"
_LENGTH = struct.Struct("<I")
_MAX_HEADER = 10_000
_COLUMNS = ("actions", "rewards", "flags")
_LONGEST_SEGMENT = 2048
_SUFFIX = ".segment"


class SegmentError(Exception):
    """A segment file is missing, damaged or of other rings."""


@dataclass(frozen=True)
class Restored:
    """What `ReplayStore.load` brought back: slots, and why some are missing, if so."""

    slots: int
    problem: str | None


class ReplayStore:
    """Saves rings into a folder; a save writes only what is new since the last.

    A lane's slots are cut into segments of fixed length. A full segment never
    changes and is written once; the newest, unfinished one is written anew at
    each save, under a name of its own. `save` returns a manifest to be put into
    the checkpoint; `prune` deletes what no manifest still needs, so that disk
    use stays below the size of the memory plus two segments a lane.
    Frames of the game shrink to about a tenth.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, rings: Rings, frames: Frames, heads: np.ndarray) -> dict[str, Any]:
        """Writes slots up to and with `heads`; the rings may be written on meanwhile.

        Raises:
            OSError: the disk is full or the folder gone; earlier segments are untouched.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        length = _segment_length(rings.capacity)
        lanes = [
            {"head": int(head), "files": self._save_lane(rings, frames, lane, int(head), length)}
            for lane, head in enumerate(heads)
        ]
        return {"segment": length, "lanes": lanes}

    def load(self, rings: Rings, frames: Frames, manifest: dict[str, Any]) -> Restored:
        """Fills empty rings; after a damaged segment only what is newer comes back.

        With another number of lanes (another number of cores, say) the saved lanes
        are dealt out to those there are, one behind the other.
        """
        lanes = manifest["lanes"]
        problem = None
        if len(lanes) == rings.lanes:
            for lane, saved in enumerate(lanes):
                problem = self._load_lane(saved, rings, frames, lane) or problem
        else:
            side = rings.frames.shape[2:]
            for number, saved in enumerate(lanes):
                single = Rings(1, _saved_capacity(saved), (side[0], side[1]))
                single_frames = RamFrames(single, torch.device("cpu"))
                problem = self._load_lane(saved, single, single_frames, 0) or problem
                _append(single, rings, frames, number % rings.lanes)
        return Restored(int((rings.heads - rings.floors).sum()), problem)

    def _load_lane(
        self, saved: dict[str, Any], rings: Rings, frames: Frames, lane: int
    ) -> str | None:
        """Fills a lane and says what went wrong, if anything did."""
        problem = None
        head = int(saved["head"])
        rings.heads[lane] = head
        rings.floors[lane] = head + 1
        for name in reversed(saved["files"]):
            try:
                # Of the name only its last part: a checkpoint can't point elsewhere.
                path = self._folder / Path(name).name
                start = self._load_segment(path, rings, frames, lane, head)
            except (SegmentError, OSError) as error:
                problem = str(error)
                break
            rings.floors[lane] = start
            if start <= head + 1 - rings.capacity:
                break
        if rings.floors[lane] > head:
            # Not even the newest frame is there: the lane starts empty.
            rings.heads[lane] = rings.floors[lane] = 0
        return problem

    def prune(self, manifests: list[dict[str, Any]]) -> None:
        """Deletes segments that none of the manifests names."""
        lanes = [lane for manifest in manifests for lane in manifest["lanes"]]
        needed = {name for lane in lanes for name in lane["files"]}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _save_lane(
        self, rings: Rings, frames: Frames, lane: int, head: int, length: int
    ) -> list[str]:
        # The slot after the head is being written: its place held the oldest slot.
        oldest = max(0, head + 2 - rings.capacity, int(rings.floors[lane]))
        names = []
        for start in range(oldest - oldest % length, head + 1, length):
            full = start + length <= head
            part = "" if full else f"-to-{head:012d}"
            name = f"lane{lane:03d}-{start:012d}{part}{_SUFFIX}"
            if not (full and (self._folder / name).exists()):
                last = start + length - 1 if full else head
                slots = np.arange(max(start, oldest), last + 1)
                self._write_segment(self._folder / name, rings, frames, lane, slots)
            names.append(name)
        return names

    @staticmethod
    def _write_segment(
        path: Path, rings: Rings, frames: Frames, lane: int, slots: np.ndarray
    ) -> None:
        places = slots % rings.capacity
        columns = [frames.read(lane, slots)]
        columns += [getattr(rings, column)[lane, places] for column in _COLUMNS]
        packed = [zlib.compress(column.tobytes(), 1) for column in columns]
        header = {
            "first": int(slots[0]),
            "count": len(slots),
            "frame": list(rings.frames.shape[2:]),
            "columns": [{"bytes": len(data), "crc": zlib.crc32(data)} for data in packed],
        }
        head = json.dumps(header).encode()
        with replacing(path) as file:
            file.write(_MAGIC + _LENGTH.pack(len(head)) + head)
            for data in packed:
                file.write(data)

    @staticmethod
    def _load_segment(path: Path, rings: Rings, frames: Frames, lane: int, head: int) -> int:
        """Puts a segment's slots into their places and returns the first of them."""
        frame_shape = rings.frames.shape[2:]
        with open(path, "rb") as file:
            first, count, parts = _read_header(file, path.name, frame_shape)
            if not (first >= 0 and 0 < count <= _LONGEST_SEGMENT and first + count <= head + 1):
                raise SegmentError(f"{path.name} is damaged in its header")
            shapes = [(np.dtype(np.uint8), (count, *frame_shape))]
            shapes += [(getattr(rings, column).dtype, (count,)) for column in _COLUMNS]
            arrays = [
                _read_column(file, path.name, part, dtype, shape)
                for part, (dtype, shape) in zip(parts, shapes, strict=True)
            ]
        slots = np.arange(max(first, head + 1 - rings.capacity), first + count)
        frames.write(lane, slots, arrays[0][slots - first])
        for column, array in zip(_COLUMNS, arrays[1:], strict=True):
            getattr(rings, column)[lane, slots % rings.capacity] = array[slots - first]
        return first


def _read_header(
    file: BinaryIO, name: str, frame_shape: tuple[int, ...]
) -> tuple[int, int, list[tuple[int, int]]]:
    """(first slot, number of slots, (bytes, checksum) of each column)."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise SegmentError(f"{name} is no segment")
    try:
        (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
        header = json.loads(file.read(min(size, _MAX_HEADER)))
        first, count = int(header["first"]), int(header["count"])
        parts = [(int(about["bytes"]), int(about["crc"])) for about in header["columns"]]
        shape = tuple(header["frame"])
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise SegmentError(f"{name} is damaged in its header") from error
    if shape != frame_shape or len(parts) != 1 + len(_COLUMNS):
        raise SegmentError(f"{name} has frames of another size")
    return first, count, parts


def _read_column(
    file: BinaryIO, name: str, part: tuple[int, int], dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Never unpacks more than the column should have."""
    packed_size, crc = part
    wanted = math.prod(shape) * dtype.itemsize
    packed = file.read(max(0, min(packed_size, 2 * wanted + 1000)))
    if zlib.crc32(packed) != crc:
        raise SegmentError(f"{name} is damaged (checksum)")
    try:
        data = zlib.decompressobj().decompress(packed, wanted + 1)
    except zlib.error as error:
        raise SegmentError(f"{name} is damaged") from error
    if len(data) != wanted:
        raise SegmentError(f"{name} is damaged (length)")
    return np.frombuffer(data, dtype).reshape(shape)


def _saved_capacity(saved: dict[str, Any]) -> int:
    """Slots enough for all that was saved of a lane."""
    return len(saved["files"]) * _LONGEST_SEGMENT + 1


def _append(single: Rings, rings: Rings, frames: Frames, lane: int) -> None:
    """Puts the newest of a lane's finished slots behind what another lane has."""
    single.cut(0)
    head = int(single.heads[0])
    slots = np.arange(max(int(single.floors[0]), head - rings.capacity + 1), head)
    # A last frame without an action, or nothing.
    if len(slots) < 2:
        return
    target = int(rings.heads[lane]) + np.arange(len(slots))
    rings.heads[lane] = target[-1] + 1
    frames.write(lane, target, single.frames[0, slots % single.capacity])
    for column in _COLUMNS:
        values = getattr(single, column)[0, slots % single.capacity]
        getattr(rings, column)[lane, target % rings.capacity] = values
    # The frames before it are not there.
    rings.flags[lane, target[0] % rings.capacity] |= FIRST


def _segment_length(capacity: int) -> int:
    return min(_LONGEST_SEGMENT, max(64, capacity // 8))
