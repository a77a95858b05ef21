"""What a configuration comes to on this machine: device, core, processes, memory."""

from __future__ import annotations

import dataclasses
import os

import torch

from mario_ddqn.config import Config
from mario_ddqn.cores import resolve_core
from mario_ddqn.errors import UserError
from mario_ddqn.sizing import ReplayPlan, plan_replay

# More would only wait: the learner can't use what they play.
_MOST_ACTORS = 8


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a configuration comes to on this machine, decided before anything is written."""

    device: torch.device
    core: str
    cores: int
    actors: int
    lanes: int
    replay: ReplayPlan


def make_plan(config: Config) -> Plan:
    """Decides it.

    Raises:
        UserError: a device or core is not there, or the replay memory does not fit.
    """
    device = pick_device(config.device)
    cores = available_cores()
    actors = actor_count(config.train.actors, cores)
    lanes = config.train.lanes * max(1, actors)
    core = resolve_core(config.env.core)
    replay = plan_replay(config.replay, size=config.env.size, device=device, lanes=lanes)
    return Plan(device, core, cores, actors, lanes, replay)


def pick_device(name: str) -> torch.device:
    """The device that `auto`, `cpu`, `cuda` or `mps` stands for here.

    Raises:
        UserError: it is named and not there.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((device for device, there in available.items() if there), "cpu")
    elif not available.get(name, True):
        raise UserError(
            f"device: is {name}, which torch {torch.__version__} does not find; use auto"
        )
    return torch.device(name)


def actor_count(wanted: int | str, cores: int) -> int:
    """Actor processes for `train.actors` on so many cores: one is left to the learner."""
    if wanted != "auto":
        return int(wanted)
    return min(max(0, cores - 1), _MOST_ACTORS)


def available_cores() -> int:
    """Cores this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
