"""The Q network."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mario_ddqn.config import NetworkConfig

# Of the first convolution, whose side is twice as long.
_STRIDE = 4


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
        self.pixels = nn.Conv2d(stack, first, 2 * _STRIDE, _STRIDE)
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
    def prepare(observation: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """uint8 observations as `forward` computes with them, in 0 to 255; exact in bfloat16 too.

        The pixels of each block of 4x4, the first convolution's stride, become
        channels: (batch, stack * 16, height // 4, width // 4), channels last. For
        callers that show the same observations to two networks.
        """
        batch, stack, height, width = observation.shape
        rows, columns = height // _STRIDE, width // _STRIDE
        whole = observation[..., : rows * _STRIDE, : columns * _STRIDE].contiguous()
        # Four pixels are moved at a time, as one int32: four times faster than one by one.
        fours = whole.view(torch.int32).view(batch, stack, rows, _STRIDE, columns)
        blocks = fours.permute(0, 2, 4, 1, 3).contiguous().view(torch.uint8)
        return blocks.view(batch, rows, columns, -1).permute(0, 3, 1, 2).to(dtype)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """uint8 (batch, stack, height, width), or `prepare` of it, to float32 (batch, actions)."""
        if observation.dtype == torch.uint8:
            observation = self.prepare(observation)
        features = self.features(
            nn.functional.conv2d(observation, self._block_weight(), self.pixels.bias)
        )
        advantage = _values(self.advantage, features)
        if self.value is None:
            return advantage
        return _values(self.value, features) + advantage - advantage.mean(1, keepdim=True)

    def _block_weight(self) -> torch.Tensor:
        """The first convolution's weights for blocks as channels: 8x8 stride 4 becomes 2x2.

        Pixels count 0 to 1: the few weights are scaled instead of the many pixels.
        """
        weight = self.pixels.weight * (1 / 255)
        filters, stack = weight.shape[:2]
        split = weight.view(filters, stack, 2, _STRIDE, 2, _STRIDE)
        blocks = split.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        return blocks.contiguous(memory_format=torch.channels_last)

    def greedy_actions(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [batch, stack, height, width] to the best action of each, int64 [batch]."""
        with torch.inference_mode():
            values = self(torch.from_numpy(observations).to(self.pixels.weight.device))
            actions: np.ndarray = values.argmax(1).cpu().numpy()
            return actions


def _values(head: nn.Sequential, features: torch.Tensor) -> torch.Tensor:
    """The head's outputs; the last layer in float32 always.

    Actions differ by less than a value's bfloat16 rounding: with it, 3% of the
    greedy choices of a trained network change, without 0.05%.
    """
    hidden = head[:-1](features).float()
    with torch.autocast(hidden.device.type, enabled=False):
        values: torch.Tensor = head[-1](hidden)
    return values


def _feature_side(side: int) -> int:
    return ((side - 8) // 4 + 1 - 4) // 2 + 1 - 2


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
