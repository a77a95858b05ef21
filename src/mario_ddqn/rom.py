"""Finds the Super Mario Bros. ROM that gym-super-mario-bros brings along."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from mario_ddqn.errors import UserError

# The file of gym-super-mario-bros 7.4.0 and 9.1.0 alike.
ROM_SHA256 = "ec299b990e8bfee8ba46e3f61d63b2e1ae5b8a2e431de84e2e4bbd692dc53586"
_PACKAGE = "gym_super_mario_bros"


def find_rom() -> Path:
    """Path of the ROM inside the installed gym-super-mario-bros package.

    The package itself is not imported: that would import gym or pyglet.

    Raises:
        UserError: the package or its ROM is missing, or the file is not the known one.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "the package gym-super-mario-bros, which brings the ROM, is not installed; "
            "run: pip install gym-super-mario-bros"
        )
    rom = Path(spec.submodule_search_locations[0]) / "_roms" / "super-mario-bros.nes"
    check_rom(rom)
    return rom


def check_rom(rom: Path) -> None:
    """Raises UserError unless `rom` is the known ROM, byte for byte."""
    repair = "run: pip install --force-reinstall --no-deps gym-super-mario-bros"
    try:
        digest = hashlib.sha256(rom.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{rom}: cannot read the ROM ({error.strerror}); {repair}") from error
    if digest != ROM_SHA256:
        raise UserError(
            f"{rom}: not the known Super Mario Bros. ROM (SHA-256 {digest[:12]}…, "
            f"expected {ROM_SHA256[:12]}…); {repair}"
        )
