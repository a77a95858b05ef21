"""The emulator cores: savestates, lanes, and one picture on both."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import CORES
from mario_ddqn import rom
from mario_ddqn.actions import button_byte
from mario_ddqn.cores import SCREEN_SHAPE, base, make_core, resolve_core
from mario_ddqn.env import MarioEnv
from mario_ddqn.errors import UserError

RUN = button_byte("right+B")
JUMP = button_byte("right+A+B")


def play_some(core, frames: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(frames // 10):
        buttons = int(random.choice([0, RUN, JUMP]))
        for _ in range(10):
            core.step(buttons)


def test_savestate_brings_back_ram_and_future(core_name: str) -> None:
    env = MarioEnv("1-1", core=core_name)
    env.reset()
    play_some(env.core, 60, 1)
    state = env.core.save_state()
    before = bytes(env.core.ram())
    play_some(env.core, 100, 2)
    after, picture = bytes(env.core.ram()), env.core.screen()
    assert after != before
    env.core.load_state(state)
    assert bytes(env.core.ram()) == before
    play_some(env.core, 100, 2)
    assert bytes(env.core.ram()) == after
    assert np.array_equal(env.core.screen(), picture)


def test_two_games_take_turns_without_touching_each_other(core_name: str) -> None:
    def trace(env: MarioEnv, other: MarioEnv | None) -> list[tuple[bytes, bytes]]:
        env.reset()
        random = np.random.default_rng(5)
        result = []
        for _ in range(40):
            buttons = int(random.choice([RUN, JUMP]))
            env.core.step(buttons)
            result.append((bytes(env.core.ram()), env.core.screen().tobytes()))
            if other is not None:
                other.core.step(JUMP)
        return result

    env, other = MarioEnv("1-1", core=core_name), MarioEnv("1-2", core=core_name)
    alone = trace(env, None)
    other.reset()
    assert trace(env, other) == alone


def test_screen_after_loading_a_state_is_of_that_state(core_name: str) -> None:
    env = MarioEnv("1-1", core=core_name)
    env.reset()
    play_some(env.core, 120, 3)
    state, picture = env.core.save_state(), env.core.screen().astype(int)
    play_some(env.core, 60, 4)
    env.core.load_state(state)
    ram = bytes(env.core.ram())
    # At most a frame apart, and looking does not move the game.
    assert np.abs(env.core.screen() - picture).mean() < 8
    assert bytes(env.core.ram()) == ram


def test_foreign_state_is_refused(core_name: str) -> None:
    core = make_core(core_name)
    with pytest.raises(ValueError, match="state of"):
        core.load_state(b"not a state at all, 31 bytes ..")


def test_screen_has_one_shape(core_name: str) -> None:
    screen = make_core(core_name).screen()
    assert screen.shape == SCREEN_SHAPE
    assert screen.dtype == np.uint8


@pytest.mark.skipif(len(CORES) < 2, reason="both cores are needed")
def test_all_64_colours_look_the_same_on_both_cores() -> None:
    """The game is made to write each palette entry into the backdrop, the sky of 1-1."""
    skies = {}
    for name in CORES:
        core = MarioEnv("1-1", core=name).core
        skies[name] = []
        for colour in range(64):
            # The game's own buffer of writes to video memory: $3F00, one byte.
            for address, value in enumerate((4, 0x3F, 0x00, 1, colour, 0), start=0x300):
                core.poke(address, value)
            for _ in range(3):
                core.step(0)
            sky = core.screen()[60:70, 20:40].reshape(-1, 3)
            assert (sky == sky[0]).all(), f"colour {colour} on {name}"
            skies[name].append(tuple(int(channel) for channel in sky[0]))
    assert skies["nes-py"] == skies["fceumm"]


def test_auto_prefers_fceumm() -> None:
    assert resolve_core("auto") == CORES[0]


def test_missing_core_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = base.importlib.util.find_spec
    monkeypatch.setattr(
        base.importlib.util,
        "find_spec",
        lambda name: None if name == "stable_retro" else found(name),
    )
    assert resolve_core("auto") == "nes-py"
    with pytest.raises(UserError, match="pip install stable-retro"):
        resolve_core("fceumm")
    with pytest.raises(UserError, match="known: auto, fceumm, nes-py"):
        resolve_core("bizhawk")


def test_rom_is_checked(tmp_path) -> None:
    assert rom.find_rom().name == "super-mario-bros.nes"
    changed = tmp_path / "changed.nes"
    changed.write_bytes(rom.find_rom().read_bytes()[:-1] + b"\0\0")
    with pytest.raises(UserError, match="not the known"):
        rom.check_rom(changed)
    with pytest.raises(UserError, match="cannot read"):
        rom.check_rom(tmp_path / "missing.nes")
