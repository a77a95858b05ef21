"""A trained network taken out of its checkpoint, to be played or measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mario_ddqn.actions import action_names
from mario_ddqn.checkpoint import find_checkpoint
from mario_ddqn.config import Config
from mario_ddqn.config_file import parse_config
from mario_ddqn.errors import UserError
from mario_ddqn.network import MarioNet


@dataclass(frozen=True)
class Policy:
    """The network of a checkpoint, on the CPU, and the configuration it was trained by.

    Its weights are the average, if the checkpoint has one, else the newest.
    """

    checkpoint: Path
    config: Config
    steps: int
    episodes: int
    network: MarioNet

    def greedy_actions(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [batch, stack, height, width] to the best action of each, int64 [batch]."""
        return self.network.greedy_actions(observations)


def load_policy(path: Path) -> Policy:
    """The policy of a checkpoint file, or of a run folder's best (else newest) checkpoint.

    From here on torch computes in one thread.

    Raises:
        UserError: nothing readable is there, or the weights do not fit the configuration.
    """
    checkpoint, payload, _ = find_checkpoint(path, prefer_best=True)
    config = parse_config(payload["config"], f"{checkpoint} (its configuration)")
    shape = (config.env.stack, config.env.size, config.env.size)
    # A step of one game has nothing to share out, and threads that wait for one another
    # beside other work made playing five times slower.
    torch.set_num_threads(1)
    network = MarioNet(shape, len(action_names(config.env.actions)), config.agent.network)
    _load_weights(network, payload, checkpoint)
    return Policy(checkpoint, config, payload["steps"], payload["episodes"], network.eval())


def _load_weights(network: MarioNet, payload: dict[str, Any], checkpoint: Path) -> None:
    try:
        agent = payload["agent"]
        network.load_state_dict(agent.get("average") or agent["model"])
    except (RuntimeError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"{checkpoint}: the weights do not fit the network of its configuration ({reason}); "
            "take another checkpoint"
        ) from error
    if not all(bool(torch.isfinite(weight).all()) for weight in network.parameters()):
        raise UserError(f"{checkpoint}: has weights that are not finite; take another checkpoint")
