"""How the learner's newest weights get to the actors."""

from __future__ import annotations

import torch
from torch import nn

from mario_ddqn.rings import Allocate


class WeightsBoard:
    """Two copies of a network's weights and a version number, in shared memory.

    The learner writes the copy that the version does not point to, then counts
    the version up; a reader copies what the version points to. A reader that
    was overtaken twice while it copied notices it by the version and reads again.
    """

    def __init__(self, network: nn.Module, allocate: Allocate) -> None:
        """`network` gives only the number of weights; float32 [2, weights] are allocated."""
        size = sum(parameter.numel() for parameter in network.parameters())
        self._copies = torch.from_numpy(allocate((2, size), "float32"))
        self._version = allocate((1,), "int64")

    @property
    def version(self) -> int:
        """Counts the publications; 0: there was none yet."""
        return int(self._version[0])

    def publish(self, network: nn.Module) -> None:
        """Makes the weights of `network`, on whatever device, the newest."""
        version = self.version + 1
        copy = self._copies[version % 2]
        at = 0
        for parameter in network.parameters():
            flat = parameter.detach().reshape(-1)
            copy[at : at + flat.numel()].copy_(flat)
            at += flat.numel()
        self._version[0] = version

    def fetch(self, network: nn.Module) -> int:
        """Copies the newest weights into `network` and returns their version."""
        while True:
            version = self.version
            copy = self._copies[version % 2]
            at = 0
            with torch.no_grad():
                for parameter in network.parameters():
                    count = parameter.numel()
                    parameter.copy_(copy[at : at + count].view_as(parameter))
                    at += count
            if self.version - version < 2:
                return version
