"""The DDQN agent: an online and a target network, and the update that trains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mario_ddqn.config import AgentConfig
from mario_ddqn.network import MarioNet
from mario_ddqn.replay import Batch


@dataclass(frozen=True)
class UpdateResult:
    """Of one update: the Huber loss, and the mean value of the actions taken."""

    loss: float
    mean_q: float


def double_dqn_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    next_online: torch.Tensor,
    next_target: torch.Tensor,
) -> torch.Tensor:
    """Equation 4 of van Hasselt et al. 2016: the online network chooses, the target values.

    `rewards` and `discounts` are float32 [batch] (see Batch), the next values of
    both networks float32 [batch, actions]; returns float32 [batch].
    """
    chosen = next_online.argmax(1, keepdim=True)
    return rewards + discounts * next_target.gather(1, chosen).squeeze(1)


class DDQNAgent:
    """Owns the networks and the optimizer; knows nothing of environments or replay."""

    def __init__(
        self,
        config: AgentConfig,
        observation_shape: tuple[int, int, int],
        action_count: int,
        device: torch.device,
    ) -> None:
        self.config = config
        self.device = device
        self.updates = 0
        self.online = MarioNet(observation_shape, action_count, config.network).to(device)
        self.target = MarioNet(observation_shape, action_count, config.network).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(
            self.online.parameters(),
            lr=config.learning_rate,
            eps=config.adam_eps,
            fused=device.type in ("cpu", "cuda"),
        )

    def greedy_actions(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [lanes, stack, height, width] to the best action of each, int64 [lanes]."""
        with torch.inference_mode():
            values = self.online(torch.from_numpy(observations).to(self.device))
            actions: np.ndarray = values.argmax(1).cpu().numpy()
            return actions

    def update(self, batch: Batch) -> UpdateResult:
        """One step of gradient descent on a batch, then the target network's sync."""
        with torch.no_grad():
            targets = double_dqn_target(
                batch.rewards,
                batch.discounts,
                self.online(batch.next_observations),
                self.target(batch.next_observations),
            )
        values = self.online(batch.observations).gather(1, batch.actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(values, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.updates += 1
        self._sync()
        return UpdateResult(loss.item(), values.mean().item())

    def _sync(self) -> None:
        if self.config.soft_sync is not None:
            with torch.no_grad():
                for target, online in zip(
                    self.target.parameters(), self.online.parameters(), strict=True
                ):
                    target.lerp_(online, self.config.soft_sync)
        elif self.config.sync_every is not None and self.updates % self.config.sync_every == 0:
            self.target.load_state_dict(self.online.state_dict())

    def get_state(self) -> dict[str, Any]:
        """Both networks, the optimizer and the count of updates."""
        return {
            "model": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`.

        Raises:
            RuntimeError: the networks have other shapes.
        """
        self.online.load_state_dict(state["model"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        # The configuration may have been changed since: it wins over what was saved.
        for group in self.optimizer.param_groups:
            group["lr"], group["eps"] = self.config.learning_rate, self.config.adam_eps
        self.updates = state["updates"]
