"""FCEUmm, through stable-retro: the fast core."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import stable_retro
from stable_retro.data import GameData

_RAM_SIZE = 0x800
# stable-retro's button order: B, (none), select, start, up, down, left, right, A.
_MASK_BITS = (1, None, 2, 3, 4, 5, 6, 7, 0)
_MASKS = [
    np.array([0 if bit is None else byte >> bit & 1 for bit in _MASK_BITS], np.uint8)
    for byte in range(256)
]


class _Machine:
    """The one emulator libretro allows a process, and which core it runs just now."""

    def __init__(self, rom: Path) -> None:
        self.emulator = stable_retro.RetroEmulator(str(rom))
        self.data = GameData()
        self.emulator.configure_data(self.data)
        self.emulator.set_button_mask(_MASKS[0], 0)
        # At power-on RAM holds garbage: one frame lets the game clear it.
        self.emulator.step()
        self.power_on: bytes = self.emulator.get_state()
        self.state_size = len(self.power_on)
        self.ram_start = _ram_offset(self.power_on)
        self.owner: FceummCore | None = None


_machine: _Machine | None = None


def _ram_offset(state: bytes) -> int:
    """Where work RAM lies in a savestate: 2 microseconds against 90 of `update_ram`."""
    tag = b"RAM\0" + struct.pack("<I", _RAM_SIZE)
    at = state.find(tag)
    if at < 0:
        raise RuntimeError("this build of FCEUmm keeps its RAM elsewhere in its savestates")
    return at + len(tag)


class FceummCore:
    """A lane of FCEUmm: cores take turns on one emulator by savestates (8 us a turn)."""

    name = "fceumm"

    def __init__(self, rom: Path) -> None:
        global _machine
        if _machine is None:
            _machine = _Machine(rom)
        self._machine = _machine
        self._emulator = _machine.emulator
        self._ram_slice = slice(_machine.ram_start, _machine.ram_start + _RAM_SIZE)
        self._parked: bytes = _machine.power_on
        # FCEUmm draws a picture only as it steps: none after a savestate is loaded.
        self._drawn = False

    def _take_turn(self) -> None:
        machine = self._machine
        if machine.owner is not None:
            machine.owner._parked = self._emulator.get_state()
            machine.owner._drawn = False
        self._emulator.set_state(self._parked)
        machine.owner = self

    def step(self, buttons: int) -> None:
        if self._machine.owner is not self:
            self._take_turn()
        self._emulator.set_button_mask(_MASKS[buttons], 0)
        self._emulator.step()
        self._drawn = True

    def ram(self) -> bytes:
        state: bytes
        state = self._emulator.get_state() if self._machine.owner is self else self._parked
        return state[self._ram_slice]

    def poke(self, address: int, value: int) -> None:
        if self._machine.owner is not self:
            self._take_turn()
        self._machine.data.memory.assign(address, "|u1", value)

    def screen(self) -> np.ndarray:
        if self._machine.owner is not self:
            self._take_turn()
        picture: np.ndarray
        if self._drawn:
            picture = self._emulator.get_screen()
            return picture
        # Draws the next frame and steps back: a sixtieth of a second early.
        state = self._emulator.get_state()
        self._emulator.set_button_mask(_MASKS[0], 0)
        self._emulator.step()
        picture = self._emulator.get_screen()
        self._emulator.set_state(state)
        return picture

    def save_state(self) -> bytes:
        state: bytes
        state = self._emulator.get_state() if self._machine.owner is self else self._parked
        return state

    def load_state(self, state: bytes) -> None:
        if len(state) != self._machine.state_size:
            raise ValueError(
                f"a savestate of FCEUmm has {self._machine.state_size} bytes, not {len(state)}"
            )
        if self._machine.owner is self:
            self._emulator.set_state(state)
        else:
            self._parked = state
        self._drawn = False

    def close(self) -> None:
        if self._machine.owner is self:
            self._machine.owner = None
