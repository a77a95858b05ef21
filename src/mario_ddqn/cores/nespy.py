"""nes-py (8.x on Python 3.11 and 3.12, 9.x from 3.13 on): runs everywhere, 4 to 6 times slower."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import numpy as np

# nes-py's colours -> FCEUmm's, for all 64 entries of the NES palette, found by
# writing each into the backdrop on both cores (tests/test_cores.py does it again).
_COLOURS = (
    "7c7c7c:707470 0000fc:201888 0000bc:0000a8 4428bc:400098 940084:880070 a80020:a80010 "
    "a81000:a00000 881400:780800 503000:402c00 007800:004400 006800:005000 005800:003c10 "
    "004058:183c58 000000:000000 bcbcbc:b8bcb8 0078f8:0070e8 0058f8:2038e8 6844fc:8000f0 "
    "d800cc:b800b8 e40058:e00058 f83800:d82800 e45c10:c84c08 ac7c00:887000 00b800:009400 "
    "00a800:00a800 00a844:009038 008888:008088 f8f8f8:f8fcf8 3cbcfc:38bcf8 6888fc:5894f8 "
    "9878f8:4088f8 f878f8:f078f8 f85898:f874b0 f87858:f87460 fca044:f89838 f8b800:f0bc38 "
    "b8f818:80d010 58d854:48dc48 58f898:58f898 00e8d8:00e8d8 787878:787878 fcfcfc:f8fcf8 "
    "a4e4fc:a8e4f8 b8b8f8:c0d4f8 d8b8f8:d0c8f8 f8b8f8:f8c4f8 f8a4c0:f8c4d8 f0d0b0:f8bcb0 "
    "fce0a8:f8d8a8 f8d878:f8e4a0 d8f878:e0fca0 b8f8b8:a8f0b8 b8f8d8:b0fcc8 00fcfc:98fcf0 "
    "f8d8f8:c0c4c0"
)
_CROP = (slice(8, 232), slice(8, 248))
_EVENT = struct.Struct("<BBH")  # kind, value, address
_STEP, _POKE = 0, 1


def _colour_table() -> np.ndarray:
    """uint8[2**18, 3]: FCEUmm's colour by nes-py's, six bits a channel (all are multiples of 4)."""
    table = np.zeros((1 << 18, 3), np.uint8)
    for pair in _COLOURS.split():
        ours, _, theirs = pair.partition(":")
        table[_colour_index(np.frombuffer(bytes.fromhex(ours), np.uint8))] = list(
            bytes.fromhex(theirs)
        )
    return table


def _colour_index(rgb: np.ndarray) -> np.ndarray:
    wide = rgb.astype(np.int32) >> 2
    return wide[..., 0] << 12 | wide[..., 1] << 6 | wide[..., 2]


_TABLE = _colour_table()


def _nes_env_class() -> Any:
    """nes_py.NESEnv, without the notice that the gym under nes-py 8 prints on import."""
    with contextlib.suppress(ImportError):
        from gym_notices import notices

        notices.notices.clear()
    from nes_py import NESEnv

    return NESEnv


class NesPyCore:
    """One nes-py emulator.

    nes-py gives no savestate that leaves the process (8.x has one backup slot an
    emulator, 9.x opaque objects), so a state is the log of all that was done since
    power-on, four bytes a frame; the emulator is deterministic. The first state
    saved also fills the backup slot, and going back to it or to anything after it
    starts from there: the start of a stage is free, the rest is played again at
    some 500 frames a second.
    """

    name = "nes-py"

    def __init__(self, rom: Path) -> None:
        self._rom = rom
        self._class = _nes_env_class()
        self._slot: tuple[bytes, np.ndarray] | None = None
        self._power_on()

    def _power_on(self) -> None:
        self._env: Any = self._class(str(self._rom))
        self._env.reset()
        self._log = bytearray()

    def step(self, buttons: int) -> None:
        self._log += _EVENT.pack(_STEP, buttons, 0)
        self._env._frame_advance(buttons)

    def ram(self) -> bytes:
        ram: bytes = self._env.ram.tobytes()
        return ram

    def poke(self, address: int, value: int) -> None:
        self._log += _EVENT.pack(_POKE, value, address)
        self._env.ram[address] = value

    def screen(self) -> np.ndarray:
        picture: np.ndarray = _TABLE[_colour_index(self._env.screen[_CROP])]
        return picture

    def save_state(self) -> bytes:
        state = bytes(self._log)
        if self._slot is None:
            self._env._backup()
            self._slot = (state, self._env.screen.copy())
        return state

    def load_state(self, state: bytes) -> None:
        if len(state) % _EVENT.size:
            raise ValueError("not a state of nes-py: its length is no multiple of 4")
        if self._slot is not None and state.startswith(self._slot[0]):
            self._env._restore()
            # The slot has no picture; the emulator's own buffer takes the one kept here.
            self._env.screen[:] = self._slot[1]
            self._log = bytearray(self._slot[0])
        else:
            self._env.close()
            self._slot = None
            self._power_on()
        for kind, value, address in _EVENT.iter_unpack(state[len(self._log) :]):
            if kind == _STEP:
                self.step(value)
            elif kind == _POKE:
                self.poke(address, value)
            else:
                raise ValueError(f"not a state of nes-py: event of unknown kind {kind}")

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
