"""Ways to the flag as demonstrations: found by the program itself, before it learns.

Archive search (search.py) finds a way; its transitions are a part of every batch,
with the large-margin loss of DQfD (Hester et al. 2018, equation 2) on the actions
taken, and its savestates are start states from the first minute.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mario_ddqn.config import Config, DemonstrationsConfig, EnvConfig
from mario_ddqn.replay import Batch, ReplayMemory, least_capacity
from mario_ddqn.rings import Rings
from mario_ddqn.search import ArchiveSearch
from mario_ddqn.start_states import Cell, cell_of
from mario_ddqn.wrappers import make_env

# The search looks up after so many agent steps, some seconds.
_CHUNK_STEPS = 2000


@dataclass(frozen=True)
class Demonstration:
    """Actions from the start to the flag (empty: none was found), and what the search took."""

    path: list[int]
    steps: int = 0
    seconds: float = 0.0


def find_demonstration(
    config: Config, report: Callable[[str], None], stop_requested: Callable[[], bool]
) -> Demonstration:
    """Searches for `demonstrations.search_steps` agent steps at most."""
    began = time.monotonic()
    env = make_env(_search_env(config.env)).unwrapped
    search = ArchiveSearch(env, np.random.default_rng([config.seed, 6]))  # type: ignore[arg-type]
    most = config.demonstrations.search_steps
    found = None
    while found is None and search.steps < most and not stop_requested():
        found = search.run(min(most, search.steps + _CHUNK_STEPS))
        report(
            f"search   {search.steps:,} of {most:,} steps, {search.cells:,} cells, "
            f"furthest {search.furthest:,} pixels"
        )
    env.close()
    if found is None:
        report("search   no way to the flag found; Mario learns without")
        return Demonstration([], search.steps, time.monotonic() - began)
    report(f"search   a way to the flag in {len(found):,} steps")
    return Demonstration(found, search.steps, time.monotonic() - began)


def _search_env(config: EnvConfig) -> EnvConfig:
    return dataclasses.replace(config, stall_steps=None, max_steps=None)


def play_back(config: Config, path: list[int]) -> tuple[Rings, dict[Cell, dict[str, Any]]]:
    """The way's transitions in one lane, and a start state for each stretch of it."""
    env = make_env(_search_env(config.env))
    game: Any = env.unwrapped
    observation, _ = env.reset(options={"noops": 0})
    capacity = least_capacity(config.env.stack, config.agent.n_step) + len(path) + 1
    rings = Rings(1, capacity, (config.env.size, config.env.size))
    rings.begin(0, observation[-1])
    states: dict[Cell, dict[str, Any]] = {}
    for action in path:
        cell = cell_of(game, config.start_states.cell_pixels)
        states.setdefault(cell, game.get_state())
        observation, reward, terminated, truncated, _ = env.step(np.int64(action))
        rings.add(
            0, action, float(reward), observation[-1], terminated=terminated, truncated=truncated
        )
    env.close()
    return rings, states


class WithDemonstrations:
    """A replay memory of which a share of each batch comes from a demonstration."""

    def __init__(
        self,
        memory: ReplayMemory,
        shown: ReplayMemory,
        path: list[int],
        config: DemonstrationsConfig,
        device: torch.device,
    ) -> None:
        """`shown` holds the transitions of `path`, see `play_back`."""
        self._memory = memory
        self._shown = shown
        self._path = path
        self._config = config
        self._device = device

    def __len__(self) -> int:
        """Transitions of the memory itself."""
        return len(self._memory)

    @property
    def capacity(self) -> int:
        """Slots of the memory itself."""
        return self._memory.capacity

    def sample(self, batch_size: int) -> Batch:
        """Transitions of the memory, then those of the demonstration."""
        count = round(batch_size * self._config.share)
        own = self._memory.sample(batch_size - count)
        if count == 0:
            return own
        shown = self._shown.sample(count)
        margins = torch.zeros(batch_size, device=self._device)
        margins[batch_size - count :] = self._config.margin
        weights = None
        if own.weights is not None:
            weights = torch.cat([own.weights, torch.ones(count, device=self._device)])
        return Batch(
            torch.cat([own.observations, shown.observations]),
            torch.cat([own.actions, shown.actions]),
            torch.cat([own.rewards, shown.rewards]),
            torch.cat([own.next_observations, shown.next_observations]),
            torch.cat([own.discounts, shown.discounts]),
            weights=weights,
            margins=margins,
            lanes=own.lanes,
            slots=own.slots,
        )

    def learned(self, batch: Batch, errors: np.ndarray) -> None:
        """Priorities are the memory's own transitions'."""
        assert batch.slots is not None
        self._memory.learned(batch, errors[: len(batch.slots)])

    def get_state(self) -> dict[str, Any]:
        """The memory's, the demonstration's random generator, and its path."""
        shown = {**self._shown.get_state(), "path": self._path}
        return {**self._memory.get_state(), "demonstration": shown}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self._memory.set_state(state)
        self._shown.set_state(state["demonstration"])
