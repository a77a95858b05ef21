"""A game of no emulator, for tests of endurance: all but the emulator is the real thing.

Mario walks where the buttons say, dies now and then, and reaches a flag; the RAM
is laid out as the game's. A frame costs 2 microseconds instead of 300.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from mario_ddqn import ram as game
from mario_ddqn.actions import START, button_byte
from mario_ddqn.cores import SCREEN_SHAPE

_RIGHT = button_byte("right")
_FLAG_X = 3161
_TICK_FRAMES = 24
# Frames Mario lives, on average.
_LIFE_FRAMES = 400
_STATE = struct.Struct("<III")
_PICTURES = np.random.default_rng(0).integers(0, 256, (8, *SCREEN_SHAPE), np.uint8)
_PICTURES.setflags(write=False)


class SyntheticCore:
    """See `mario_ddqn.cores.base.Core`."""

    name = "synthetic"

    def __init__(self, rom: Path) -> None:
        del rom
        self._ram = bytearray(2048)
        self._ram[game.PLAYER_STATE] = game.PLAYER_NORMAL
        self._ram[game.Y_VIEWPORT] = 1
        self._frame = self._x = 0
        self._random = 1

    def step(self, buttons: int) -> None:
        ram = self._ram
        self._frame += 1
        self._random = (self._random * 1664525 + 1013904223 + buttons) & 0xFFFFFFFF
        if buttons & START and ram[game.GAME_MODE] != game.MODE_PLAYING:
            ram[game.GAME_MODE] = game.MODE_PLAYING
            ram[game.LIFE] = 2
            self._set_clock(400)
            return
        if self._frame % _TICK_FRAMES == 0 and game.time_left(ram) > 0:
            self._set_clock(game.time_left(ram) - 1)
        if buttons & _RIGHT:
            self._x += 3
            ram[game.X_PAGE], ram[game.X_PIXEL] = divmod(self._x, 256)
        if self._x >= _FLAG_X:
            ram[game.FLOAT_STATE], ram[game.ENEMY_TYPES[0]] = game.FLOAT_ON_POLE, game.FLAGPOLE
        elif self._x > 60 and self._random < 2**32 // _LIFE_FRAMES:
            ram[game.PLAYER_STATE] = game.PLAYER_DYING

    def _set_clock(self, ticks: int) -> None:
        for digit, value in enumerate(f"{ticks:03}"):
            self._ram[game.CLOCK + digit] = int(value)

    def ram(self) -> bytearray:
        return self._ram

    def poke(self, address: int, value: int) -> None:
        self._ram[address] = value

    def screen(self) -> np.ndarray:
        picture: np.ndarray = _PICTURES[self._frame % len(_PICTURES)]
        return picture

    def save_state(self) -> bytes:
        return bytes(self._ram) + _STATE.pack(self._frame, self._x, self._random)

    def load_state(self, state: bytes) -> None:
        self._ram[:] = state[:2048]
        self._frame, self._x, self._random = _STATE.unpack(state[2048:])

    def close(self) -> None:
        pass
