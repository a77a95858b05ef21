"""What every emulator core can do, and which one is used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Protocol

import numpy as np

from mario_ddqn.errors import UserError
from mario_ddqn.ram import Ram
from mario_ddqn.rom import find_rom

# FCEUmm's picture; nes-py's 240x256 is cropped to it (8 pixels of overscan a side).
SCREEN_SHAPE = (224, 240, 3)

# Name -> (module and class, importable package, what to install), best first.
CORES = {
    "fceumm": ("mario_ddqn.cores.fceumm:FceummCore", "stable_retro", "stable-retro"),
    "nes-py": ("mario_ddqn.cores.nespy:NesPyCore", "nes_py", "nes-py"),
}
CORE_NAMES = ("auto", *CORES)


class Core(Protocol):
    """One running game, switched on by its constructor.

    Any number of cores may be alive in a process and be used by turns.
    """

    name: str

    def step(self, buttons: int) -> None:
        """Presses `buttons` (a byte, see `mario_ddqn.actions`) and advances one frame."""

    def ram(self) -> Ram:
        """The 2 KiB of work RAM as they are now; valid until the next call."""

    def poke(self, address: int, value: int) -> None:
        """Writes one byte of work RAM."""

    def screen(self) -> np.ndarray:
        """The picture, uint8 RGB of `SCREEN_SHAPE`; the caller may keep it."""

    def save_state(self) -> bytes:
        """All there is to go on from this moment, for any core of the same name."""

    def load_state(self, state: bytes) -> None:
        """Goes back to the moment of `save_state`.

        Raises:
            ValueError: `state` is not one of this core's.
        """

    def close(self) -> None:
        """Frees the emulator; the core can't be used afterwards."""


def resolve_core(name: str) -> str:
    """The core that `name` (one of `CORE_NAMES`) stands for on this machine.

    Raises:
        UserError: it, or with `auto` every core, is not installed.
    """
    if name not in CORE_NAMES:
        raise UserError(f"unknown core {name!r}; known: {', '.join(CORE_NAMES)}")
    wanted = list(CORES) if name == "auto" else [name]
    for candidate in wanted:
        if importlib.util.find_spec(CORES[candidate][1]) is not None:
            return candidate
    packages = " or ".join(CORES[candidate][2] for candidate in wanted)
    raise UserError(
        f"core {name!r} needs the package {packages}, which is not installed; "
        f"run: pip install {CORES[wanted[0]][2]}, or choose another core"
    )


def make_core(name: str = "auto") -> Core:
    """Switches on a core with the Super Mario Bros. ROM."""
    module, _, attribute = CORES[resolve_core(name)][0].partition(":")
    core: Core = getattr(importlib.import_module(module), attribute)(find_rom())
    return core
