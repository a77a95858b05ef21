"""Proof that it is the same game: gym-super-mario-bros' own environment against ours.

Both get the same buttons. On nes-py every frame must agree in everything that
gym-super-mario-bros tells. FCEUmm shows in frame n what nes-py shows in n + 1:
shifted by that frame, position, life, death and flag must agree in every frame;
the clock, whose ticks are up to two frames off from the title screen on, must
agree but for those frames.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from conftest import CORES
from mario_ddqn.actions import action_names, button_byte
from mario_ddqn.env import MarioEnv

KEYS = ("x_pos", "y_pos", "life", "flag_get", "time", "coins", "score", "status", "world", "stage")
CLOCK = KEYS.index("time")
NAMES = [*action_names("complex"), "B", "down+B", "right+down"]
pytestmark = pytest.mark.slow
STAGES = ("1-1", "1-2", "4-2", "8-4", "2-2")


def reference_env(stage: str):
    try:
        from gym_notices import notices

        notices.notices.clear()
    except ImportError:
        pass
    from gym_super_mario_bros.smb_env import SuperMarioBrosEnv

    return SuperMarioBrosEnv(target=tuple(int(part) for part in stage.split("-")))


def random_buttons(seed: int, frames: int) -> list[str]:
    """Mostly to the right, jumps of different lengths, sometimes anything else."""
    random = np.random.default_rng(seed)
    names: list[str] = []
    while len(names) < frames:
        forward = random.random() < 0.8
        choices = ["right", "right+A", "right+B", "right+A+B", "right+A+B"] if forward else NAMES
        names += [str(random.choice(choices))] * int(random.integers(2, 25))
    return names[:frames]


def trace_reference(stage: str, names: list[str]) -> list[tuple]:
    env = reference_env(stage)
    env.reset()
    rows = []
    for name in names:
        step = env.step(button_byte(name))
        info, over = step[-1], bool(step[2])
        rows.append((*(_plain(info[key]) for key in KEYS), over))
        if over:
            break
    env.close()
    return rows


def trace_ours(stage: str, names: list[str], core: str) -> list[tuple]:
    env = MarioEnv(stage, core=core, actions=NAMES)
    env.reset()
    rows = []
    for name in names:
        *_, terminated, truncated, info = env.step(NAMES.index(name))
        assert not truncated
        rows.append((*(_plain(info[key]) for key in KEYS), terminated))
        if terminated:
            break
    env.close()
    return rows


def _plain(value):
    return value if isinstance(value, str) else int(value)


def without_clock(rows: list[tuple]) -> list[tuple]:
    return [row[:CLOCK] + row[CLOCK + 1 :] for row in rows]


@pytest.mark.parametrize("stage", STAGES)
def test_random_play(stage: str) -> None:
    frames = 0
    for seed in range(4):
        names = random_buttons(seed, 1500)
        reference = trace_reference(stage, names)
        compare(stage, names, reference)
        frames += len(reference)
    assert frames > 250


@pytest.mark.parametrize("stage", ["1-1", "1-2", "1-4"])
def test_long_ways(stage: str, paths: dict) -> None:
    """Ways to the flag found on FCEUmm: thousands of frames, a pipe between two areas.

    Where Mario comes out of a pipe the cores are another frame apart, so that from
    there on a button falls on other frames of the game: FCEUmm is compared up to
    the pipe. In 1-4 Bowser's random numbers, two frames off from the title screen on, decide
    whether the way that was found on one core ends well on the other.
    """
    path = paths[stage]
    names = [name for name in path["actions"] for _ in range(path["frame_skip"])]
    reference = trace_reference(stage, names + names[-1:])
    assert len(reference) > 1200
    if stage != "1-4":
        assert reference[-1][KEYS.index("flag_get")]
    if "nes-py" in CORES:
        assert trace_ours(stage, names + names[-1:], "nes-py") == reference
    if "fceumm" in CORES:
        ours = trace_ours(stage, names, "fceumm")
        assert ours[-1][KEYS.index("flag_get")]
        mine, theirs = areas(ours), areas(reference)
        assert len(mine) == len(theirs) == (2 if stage == "1-2" else 1)
        assert len(mine[0]) > 1200
        assert agree(without_clock(mine[0]), without_clock(theirs[0]))


def areas(rows: list[tuple]) -> list[list[tuple]]:
    """The rows cut where x jumps."""
    parts = [[rows[0]]]
    for before, row in itertools.pairwise(rows):
        if abs(row[0] - before[0]) > 5:
            parts.append([])
        parts[-1].append(row)
    return parts


def agree(mine: list[tuple], theirs: list[tuple]) -> bool:
    """Row for row, up to three frames apart, but for the frame in which one of them ends."""
    for shift in range(-1, 4):
        a, b = (mine, theirs[shift:]) if shift >= 0 else (mine[-shift:], theirs)
        length = min(len(a), len(b)) - 1
        if length > 0.9 * len(mine) and a[:length] == b[:length]:
            return True
    return False


def compare(stage: str, names: list[str], reference: list[tuple]) -> None:
    if "nes-py" in CORES:
        assert trace_ours(stage, names, "nes-py") == reference
    if "fceumm" in CORES:
        ours = trace_ours(stage, names[: len(reference) - 1], "fceumm")
        later = reference[1:]
        assert without_clock(ours) == without_clock(later)
        off = sum(mine[CLOCK] != theirs[CLOCK] for mine, theirs in zip(ours, later, strict=True))
        ticks = 1 + later[0][CLOCK] - later[-1][CLOCK]
        assert off <= 2 * ticks
