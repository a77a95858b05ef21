"""From the picture to the network's observation: grey, small, stacked; uint8 all the way."""

from __future__ import annotations

from typing import Any, SupportsFloat

import cv2
import gymnasium
import numpy as np
from gymnasium import spaces

from mario_ddqn.config import EnvConfig
from mario_ddqn.env import MarioEnv

# One thread a process: OpenCV's pool would fight the learner for two cores.
cv2.setNumThreads(1)


class GrayResize(gymnasium.ObservationWrapper[np.ndarray, np.int64, np.ndarray]):
    """RGB picture to grey uint8 of shape (size, size)."""

    def __init__(self, env: gymnasium.Env, size: int) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)
        self._size = size

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Halves by 2x2 means while that leaves enough, then interpolates.

        A third of the time of area interpolation in one go; the mean difference
        to it is 2 grey levels.
        """
        picture = cv2.cvtColor(observation, cv2.COLOR_RGB2GRAY)
        height, width = picture.shape
        while height >= 2 * self._size and width >= 2 * self._size:
            height, width = height // 2, width // 2
            picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
        small: np.ndarray = cv2.resize(
            picture, (self._size, self._size), interpolation=cv2.INTER_LINEAR
        )
        return small


class FrameStack(gymnasium.Wrapper[np.ndarray, np.int64, np.ndarray, np.int64]):
    """The last `stack` observations, oldest first: uint8 of shape (stack, height, width).

    A reset fills the stack with the first observation.
    """

    def __init__(self, env: gymnasium.Env, stack: int) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        assert shape is not None
        self.observation_space = spaces.Box(0, 255, (stack, *shape), np.uint8)
        self._frames = np.zeros((stack, *shape), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._frames[:] = observation
        return self._frames.copy(), info

    def step(
        self, action: np.int64
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._frames[:-1] = self._frames[1:]
        self._frames[-1] = observation
        return self._frames.copy(), reward, terminated, truncated, info

    @property
    def frames(self) -> np.ndarray:
        """The stack as it is now, to be kept and put back by a resumed run."""
        return self._frames

    @frames.setter
    def frames(self, frames: np.ndarray) -> None:
        self._frames[:] = frames


def make_env(config: EnvConfig) -> FrameStack:
    """The environment of a run: MarioEnv, grey and small, stacked.

    Raises:
        UserError: the stage, core or action set is unknown, or the core not installed.
    """
    env = MarioEnv(
        config.stage,
        core=config.core,
        actions=config.actions,
        frame_skip=config.frame_skip,
        max_last_two=config.max_last_two,
        fresh_jumps=config.fresh_jumps,
        reward=config.reward,
        noop_max=config.noop_max,
        max_steps=config.max_steps,
        stall_steps=config.stall_steps,
    )
    return FrameStack(GrayResize(env, config.size), config.stack)
