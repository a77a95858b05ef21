"""Grey, small, stacked."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from conftest import CORES
from mario_ddqn.config import EnvConfig
from mario_ddqn.env import MarioEnv
from mario_ddqn.wrappers import FrameStack, GrayResize, make_env


@pytest.mark.parametrize("size", [84, 64, 42, 112, 130, 224])
def test_shapes_and_types(size: int) -> None:
    env = make_env(EnvConfig(size=size, stack=3))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (3, size, size)
    assert observation.dtype == np.uint8
    assert env.observation_space.contains(observation)
    assert env.observation_space.contains(env.step(np.int64(1))[0])


def test_gray_resize_stays_close_to_area_interpolation() -> None:
    env = MarioEnv("1-1", actions=["right+B"], frame_skip=4)
    gray = GrayResize(env, 84)
    picture, _ = env.reset()
    for _ in range(20):
        reference = cv2.resize(
            cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA
        )
        assert np.abs(gray.observation(picture).astype(int) - reference).mean() < 3
        picture = env.step(0)[0]


def test_stack_is_oldest_first_and_starts_with_the_first_frame_repeated() -> None:
    env = make_env(EnvConfig(stack=4, noop_max=0))
    first, _ = env.reset()
    assert all(np.array_equal(frame, first[0]) for frame in first)
    frames = [first[0]]
    for _ in range(6):
        observation = env.step(np.int64(4))[0]
        frames.append(observation[-1])
        expected = ([first[0]] * 3 + frames)[-4:]
        assert np.array_equal(observation, np.stack(expected))
    again, _ = env.reset()
    assert np.array_equal(again, first)


def test_observations_given_out_do_not_change_afterwards() -> None:
    env = make_env(EnvConfig())
    observation, _ = env.reset()
    kept = observation.copy()
    env.step(np.int64(4))
    assert np.array_equal(observation, kept)


@pytest.mark.skipif(len(CORES) < 2, reason="both cores are needed")
@pytest.mark.parametrize("stage", ["1-1", "1-2", "4-2", "8-4", "2-2"])
def test_a_checkpoint_sees_the_same_on_both_cores(stage: str) -> None:
    """At the same moment (FCEUmm is one frame ahead) the observations are all but equal."""
    observations = []
    for core, frames in (("fceumm", 80), ("nes-py", 81)):
        env = MarioEnv(stage, core=core, actions=["right"])
        stacked = FrameStack(GrayResize(env, 84), 1)
        stacked.reset()
        for _ in range(frames):
            observation = stacked.step(np.int64(0))[0]
        observations.append(observation.astype(int))
    difference = np.abs(observations[0] - observations[1])
    assert difference.mean() < 1
