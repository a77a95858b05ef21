"""Archive search: finds a way to the flag before anything is learned.

Go-Explore's first phase (Ecoffet et al. 2021): remember a savestate for every
cell of the game that was reached, go back to a rarely visited one, act at random
from there, keep what is new. No demonstration by a human goes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mario_ddqn import ram as game
from mario_ddqn.env import MarioEnv

_CELL_PIXELS = 16
# Random actions after a return to a cell, and how long one is held at most.
_STEPS_A_TRY = 40
_LONGEST_HOLD = 10

Cell = tuple[Any, ...]
Test = Callable[[dict[str, Any]], bool]  # of a step's info


@dataclass
class Entry:
    """How a cell was reached: the entry before it, the actions from there, the savestate."""

    parent: Entry | None
    actions: list[int]
    state: dict[str, Any]
    length: int
    visits: int = 0

    def path(self) -> list[int]:
        """All actions from the start of the stage."""
        parts = []
        entry: Entry | None = self
        while entry is not None:
            parts.append(entry.actions)
            entry = entry.parent
        return [action for part in reversed(parts) for action in part]


def _is_clear(info: dict[str, Any]) -> bool:
    return bool(info["flag_get"])


def _is_nothing(_info: dict[str, Any]) -> bool:
    return False


class ArchiveSearch:
    """Searches one stage; the environment's frame skip and actions are those of the path."""

    def __init__(
        self,
        env: MarioEnv,
        random: np.random.Generator,
        *,
        goal: Test = _is_clear,
        avoid: Test = _is_nothing,
    ) -> None:
        """The search ends where `goal` is true; nothing is kept of where `avoid` is."""
        self._env = env
        self._random = random
        self._goal = goal
        self._avoid = avoid
        self.steps = 0
        self.furthest = 0
        env.reset(options={"noops": 0})
        self._archive: dict[Cell, Entry] = {self._cell(): Entry(None, [], env.get_state(), 0)}

    @property
    def cells(self) -> int:
        """Cells reached so far."""
        return len(self._archive)

    def run(self, max_steps: int) -> list[int] | None:
        """Searches until the goal is reached, or `max_steps` agent steps are spent in all.

        Returns the actions that lead to the goal; after None it may be called again.
        """
        while self.steps < max_steps:
            entry = self._pick()
            entry.visits += 1
            found = self._try(entry)
            if found is not None:
                return found
        return None

    def _pick(self) -> Entry:
        entries = list(self._archive.values())
        weights = 1 / np.sqrt([entry.visits + 1 for entry in entries])
        return entries[self._random.choice(len(entries), p=weights / weights.sum())]

    def _try(self, entry: Entry) -> list[int] | None:
        self._env.set_state(entry.state)
        actions: list[int] = []
        action, hold = 0, 0
        for _ in range(_STEPS_A_TRY):
            if hold == 0:
                action = int(self._random.integers(len(self._env.action_names)))
                hold = int(self._random.integers(1, _LONGEST_HOLD + 1))
            hold -= 1
            *_, terminated, truncated, info = self._env.step(action)
            self.steps += 1
            actions.append(action)
            self.furthest = max(self.furthest, info["progress"])
            if self._goal(info):
                return [*entry.path(), *actions]
            if terminated or truncated or self._avoid(info):
                return None
            cell = self._cell()
            length = entry.length + len(actions)
            known = self._archive.get(cell)
            if known is None or length < known.length:
                visits = known.visits if known else 0
                self._archive[cell] = Entry(
                    entry, actions.copy(), self._env.get_state(), length, visits
                )
        return None

    def _cell(self) -> Cell:
        ram = self._env.core.ram()
        x, y = game.x_pos(ram) // _CELL_PIXELS, game.y_pos(ram) // _CELL_PIXELS
        return (*game.area_key(ram)[:4], x, y)
