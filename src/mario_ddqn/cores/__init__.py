"""Emulator cores: one protocol, two implementations."""

from mario_ddqn.cores.base import CORE_NAMES, SCREEN_SHAPE, Core, make_core, resolve_core

__all__ = ["CORE_NAMES", "SCREEN_SHAPE", "Core", "make_core", "resolve_core"]
