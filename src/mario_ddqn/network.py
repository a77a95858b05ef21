"""The Q network."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mario_ddqn.config import NetworkConfig


class MarioNet(nn.Module):
    """Action values of stacked frames.

    The convolutions are those of the PyTorch tutorial "Train a Mario-playing RL
    Agent", which are those of Mnih et al. 2015: 32 filters 8x8 stride 4, 64 of
    4x4 stride 2, 64 of 3x3 stride 1, a hidden layer of 512. Their numbers can
    be scaled. With `dueling` the hidden layer is split into a value and an
    advantage stream, joined as in equation 9 of Wang et al. 2016.
    """

    def __init__(
        self, observation_shape: tuple[int, int, int], action_count: int, config: NetworkConfig
    ) -> None:
        """`observation_shape` is (stack, height, width), each side at least 36."""
        super().__init__()
        stack, height, width = observation_shape
        first, second, third = (max(1, round(config.width * n)) for n in (32, 64, 64))
        self.pixels = nn.Conv2d(stack, first, 8, 4)
        self.features = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(first, second, 4, 2),
            nn.ReLU(),
            nn.Conv2d(second, third, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        flat = third * _feature_side(height) * _feature_side(width)
        self.advantage = _head(flat, config.hidden, action_count)
        self.value = _head(flat, config.hidden, 1) if config.dueling else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @staticmethod
    def prepare(observation: torch.Tensor) -> torch.Tensor:
        """uint8 observations as the float32 that `forward` computes with, in 0 to 255.

        For callers that show the same observations to two networks.
        """
        return observation.to(torch.float32, memory_format=torch.channels_last)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """uint8 (batch, stack, height, width), or `prepare` of it, to float32 (batch, actions)."""
        if observation.dtype == torch.uint8:
            observation = self.prepare(observation)
        # Pixels count 0 to 1: the few weights are scaled instead of the many pixels.
        weight = self.pixels.weight * (1 / 255)
        features = self.features(
            nn.functional.conv2d(observation, weight, self.pixels.bias, self.pixels.stride)
        )
        advantage: torch.Tensor = self.advantage(features)
        if self.value is None:
            return advantage
        value: torch.Tensor = self.value(features)
        return value + advantage - advantage.mean(1, keepdim=True)

    def greedy_actions(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [batch, stack, height, width] to the best action of each, int64 [batch]."""
        with torch.inference_mode():
            values = self(torch.from_numpy(observations).to(self.pixels.weight.device))
            actions: np.ndarray = values.argmax(1).cpu().numpy()
            return actions


def _feature_side(side: int) -> int:
    return ((side - 8) // 4 + 1 - 4) // 2 + 1 - 2


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
