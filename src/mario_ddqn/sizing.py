"""How large the replay memory may be, so that a run never dies of memory after hours."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from mario_ddqn.config import ReplayConfig
from mario_ddqn.errors import UserError

GB = 1_000_000_000
# Beside the frame: action 1, reward 4, flags 1. Episodes add a slot each for
# their last frame; a share of 1% covers them (an episode has over 100 steps).
_BYTES_BESIDE_FRAME = 6
_CGROUP_ROOT = Path("/sys/fs/cgroup")
# A cgroup without a limit shows a number near the largest of 64 bits.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class ReplayPlan:
    """What the replay memory will be: transitions, bytes, and the device it lies on."""

    maxlen: int
    size_bytes: int
    device: str


def transition_bytes(size: int) -> int:
    """Bytes a transition takes in the replay memory, with frames of `size` x `size`."""
    return size * size + _BYTES_BESIDE_FRAME


def free_ram() -> int:
    """Bytes of RAM this process may still take: the machine's, or less in a container."""
    free = int(psutil.virtual_memory().available)
    limits = [_cgroup_v2_free(), _cgroup_v1_free()]
    return min([free, *(limit for limit in limits if limit is not None)])


def free_gpu_memory(device: torch.device) -> int:
    """Bytes free on a CUDA device, what other programs hold taken off."""
    free, _total = torch.cuda.mem_get_info(device)
    return free


def plan_replay(
    config: ReplayConfig, *, size: int, device: torch.device, lanes: int = 1
) -> ReplayPlan:
    """Decides on size and place of the replay memory before any training.

    Raises:
        UserError: `replay.maxlen` does not fit (and `replay.if_too_big` is `error`),
            or `replay.device` is `cuda` and the run is not on a GPU.
    """
    if config.device == "cuda" and device.type != "cuda":
        raise UserError(
            f"replay.device: is cuda, but the run is on {device.type}; set it to auto or cpu"
        )
    each = transition_bytes(size)
    reserve = int(config.reserve_gb * GB)
    fits_ram = max(0, free_ram() - reserve) // each
    fits_gpu = 0
    if device.type == "cuda" and config.device != "cpu":
        fits_gpu = max(0, free_gpu_memory(device) - reserve) // each
    place = _place(config, fits_gpu)
    fits = fits_gpu if place == "cuda" else fits_ram
    # Below this no lane could hold a stack and an n-step return.
    least = 1000 * lanes
    if config.maxlen == "auto":
        maxlen = fits
    else:
        maxlen = int(config.maxlen)
        if maxlen > fits:
            if config.if_too_big == "error":
                raise UserError(_too_big(config, maxlen, fits, each, place))
            maxlen = fits
    if maxlen < least:
        raise UserError(
            f"replay.maxlen: {maxlen:,} transitions for {lanes} lanes are too few (at least "
            f"{least:,}); free memory, raise replay.maxlen, or lower replay.reserve_gb or the lanes"
        )
    return ReplayPlan(maxlen, maxlen * each, place)


def _place(config: ReplayConfig, fits_gpu: int) -> str:
    if config.device != "auto":
        return config.device
    wanted = 1 if config.maxlen == "auto" else int(config.maxlen)
    return "cuda" if fits_gpu >= wanted else "cpu"


def _too_big(config: ReplayConfig, maxlen: int, fits: int, each: int, place: str) -> str:
    where = "GPU memory" if place == "cuda" else "RAM"
    free = fits * each + int(config.reserve_gb * GB)
    return (
        f"replay.maxlen: {maxlen:,} transitions need {maxlen * each:,} bytes of {where}, "
        f"{free:,} are free and {config.reserve_gb:g} GB stay in reserve; the largest that fits "
        f"is {fits:,} (set it, or auto, or replay.if_too_big: shrink)"
    )


def _cgroup_v2_free() -> int | None:
    folder = _own_cgroup()
    tightest = None
    # A limit may be set on any of the groups above.
    while folder is not None and folder.is_relative_to(_CGROUP_ROOT):
        limit = _number(folder / "memory.max")
        used = _number(folder / "memory.current")
        if limit is not None and used is not None and limit < _NO_LIMIT:
            free = limit - used + _reclaimable(folder / "memory.stat", "inactive_file")
            tightest = free if tightest is None else min(tightest, free)
        folder = folder.parent if folder != _CGROUP_ROOT else None
    return tightest


def _cgroup_v1_free() -> int | None:
    folder = _CGROUP_ROOT / "memory"
    limit = _number(folder / "memory.limit_in_bytes")
    used = _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _NO_LIMIT:
        return None
    return limit - used + _reclaimable(folder / "memory.stat", "total_inactive_file")


def _own_cgroup() -> Path | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("0::"):
            return Path(os.path.normpath(_CGROUP_ROOT / line[3:].lstrip("/")))
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _reclaimable(path: Path, key: str) -> int:
    """Bytes of file cache that the kernel gives back before it runs short."""
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except OSError:
        pass
    return 0
