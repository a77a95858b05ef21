"""A start-state archive: some episodes start where Mario has been before.

The whole stage is practised from the first minutes instead of its beginning
only (Salimans & Chen 2018; Ecoffet et al. 2021). Evaluation always starts at the
stage's start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mario_ddqn import ram as game
from mario_ddqn.config import StartStatesConfig
from mario_ddqn.env import MarioEnv
from mario_ddqn.randomness import get_random, set_random

Cell = tuple[int, ...]


def cell_of(env: MarioEnv, pixels: int) -> Cell:
    """The stretch of the stage, so many pixels long, that Mario is in."""
    ram = env.core.ram()
    return (*game.area_key(ram)[:4], game.x_pos(ram) // pixels)


class StartStates:
    """One savestate for each stretch of the stage that Mario has passed alive.

    A state is kept only when he has lived on for a while: from most others there
    is no way but down.
    """

    def __init__(
        self,
        config: StartStatesConfig,
        lanes: int,
        random: np.random.Generator,
        known: dict[Cell, dict[str, Any]],
    ) -> None:
        """`known` are states to begin with, by `cell_of`."""
        self._config = config
        self._random = random
        self._states = dict(known)
        self._new: dict[Cell, dict[str, Any]] = {}
        # By lane: where it is, and what waits to prove itself: (cell, state, steps since).
        self._cells: list[Cell | None] = [None] * lanes
        self._waiting: list[list[tuple[Cell, dict[str, Any], int]]] = [[] for _ in range(lanes)]

    def __len__(self) -> int:
        """Stretches of the stage there is a state for."""
        return len(self._states)

    def choose(self) -> dict[str, Any] | None:
        """Where the next episode starts: a state, each stretch alike; None: the start."""
        if self._random.random() >= self._config.share or not self._states:
            return None
        cells = list(self._states)
        return self._states[cells[self._random.integers(len(cells))]]

    def begin(self, lane: int) -> None:
        """An episode starts in the lane."""
        self._cells[lane] = None
        self._waiting[lane].clear()

    def step(self, lane: int, env: MarioEnv) -> None:
        """The lane's game has made a step and goes on."""
        if self._config.share == 0:
            return
        waiting = self._waiting[lane]
        self._waiting[lane] = [(cell, state, age + 1) for cell, state, age in waiting]
        if waiting and self._waiting[lane][0][2] >= self._config.alive_steps:
            cell, state, _age = self._waiting[lane].pop(0)
            if cell not in self._states:
                self._new[cell] = state
            self._states[cell] = state
        cell = cell_of(env, self._config.cell_pixels)
        if cell != self._cells[lane]:
            self._cells[lane] = cell
            self._waiting[lane].append((cell, env.get_state(), 0))

    def take_new(self) -> dict[Cell, dict[str, Any]]:
        """Stretches reached for the first time since the last call, with their states."""
        new, self._new = self._new, {}
        return new

    def get_state(self) -> dict[str, Any]:
        """The archive, what waits, and the random generator."""
        return {
            "cells": [list(cell) for cell in self._states],
            "states": list(self._states.values()),
            "lanes": [list(cell) if cell else None for cell in self._cells],
            "waiting": [
                [[list(cell), state, age] for cell, state, age in lane] for lane in self._waiting
            ],
            "random": get_random(self._random),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        keys = [tuple(cell) for cell in state["cells"]]
        self._states = dict(zip(keys, state["states"], strict=True))
        self._cells = [tuple(cell) if cell else None for cell in state["lanes"]]
        self._waiting = [
            [(tuple(cell), saved, age) for cell, saved, age in lane] for lane in state["waiting"]
        ]
        set_random(self._random, state["random"])
