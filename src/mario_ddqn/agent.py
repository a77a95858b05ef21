"""The DDQN agent: an online and a target network, and the update that trains them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mario_ddqn.augmentation import random_shift
from mario_ddqn.config import AgentConfig
from mario_ddqn.network import MarioNet
from mario_ddqn.replay import Batch

# The average is moved once for so many updates, by all their shares: it costs as much as Adam.
_AVERAGE_EVERY = 10
# Of a young network the average reaches over about so much of its updates, or it would
# play by what it was born with for the first minute.
_AVERAGE_OVER = 1 / 5


class NotFiniteError(Exception):
    """An update has been refused: its loss or gradient is not finite; the weights are as before."""


@dataclass(frozen=True)
class UpdateResult:
    """Of one update: the Huber loss, the mean value of the actions taken, and by how much
    each of them was off: float32 [batch], absolute."""

    loss: float
    mean_q: float
    errors: np.ndarray


def double_dqn_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    next_online: torch.Tensor,
    next_target: torch.Tensor,
) -> torch.Tensor:
    """Equation 4 of van Hasselt et al. 2016: the online network chooses, the target values.

    `rewards` and `discounts` are float32 [batch] (see Batch), the next values of
    both networks float32 [batch, actions]; returns float32 [batch]. With the target
    network's values for both it is DQN's target (Mnih et al. 2015, algorithm 1).
    """
    chosen = next_online.argmax(1, keepdim=True)
    return rewards + discounts * next_target.gather(1, chosen).squeeze(1)


def margin_losses(
    values: torch.Tensor, actions: torch.Tensor, margins: torch.Tensor
) -> torch.Tensor:
    """Equation 2 of Hester et al. 2018: by how much other actions come too close to those shown.

    `values` float32 [batch, actions], `actions` int64 [batch], `margins`
    float32 [batch] (0: no loss); returns float32 [batch].
    """
    shown = values.gather(1, actions[:, None])
    rivals = (values + margins[:, None]).scatter(1, actions[:, None], shown)
    return (rivals.amax(1) - shown.squeeze(1)) * (margins > 0)


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
        self._dtype = torch.bfloat16 if uses_bf16(config.bf16, device) else torch.float32
        self.average = copy.deepcopy(self.target) if config.average is not None else None
        self._average_share = 1 - (1 - (config.average or 0)) ** _AVERAGE_EVERY
        # The same weights; compiled, if at all, for the update's fixed batch only.
        self._online: Callable[[torch.Tensor], torch.Tensor] = self.online
        self._target: Callable[[torch.Tensor], torch.Tensor] = self.target
        if config.compile:
            self._online, self._target = torch.compile(self.online), torch.compile(self.target)
        self.optimizer = torch.optim.Adam(
            self.online.parameters(),
            lr=config.learning_rate,
            eps=config.adam_eps,
            fused=device.type in ("cpu", "cuda"),
        )

    @property
    def policy(self) -> MarioNet:
        """The network to play with: the average of the weights, or else the newest."""
        return self.average or self.online

    def greedy_actions(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [lanes, stack, height, width] to the best action of each, int64 [lanes]."""
        return self.policy.greedy_actions(observations)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of gradient descent on a batch, then the target network's sync.

        Raises:
            NotFiniteError: before anything is changed.
        """
        with self._autocast():
            with torch.no_grad():
                following = self._prepare(batch.next_observations)
                worth = self._target(following)
                choosing = self._online(following) if self.config.double else worth
                targets = double_dqn_target(batch.rewards, batch.discounts, choosing, worth)
            values = self._online(self._prepare(batch.observations))
        taken = values.gather(1, batch.actions[:, None]).squeeze(1)
        losses = nn.functional.smooth_l1_loss(taken, targets, reduction="none")
        if batch.margins is not None:
            losses = losses + margin_losses(values, batch.actions, batch.margins)
        loss = (losses if batch.weights is None else losses * batch.weights).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        bound = math.inf if self.config.grad_clip is None else self.config.grad_clip
        norm = nn.utils.clip_grad_norm_(self.online.parameters(), bound)
        if not math.isfinite(loss.item()) or not math.isfinite(norm.item()):
            raise NotFiniteError(
                f"update {self.updates + 1}: loss {loss.item()}, gradient norm {norm.item()}, of a "
                f"batch with rewards {batch.rewards.min().item():g} to "
                f"{batch.rewards.max().item():g} and values {taken.min().item():g} to "
                f"{taken.max().item():g}"
            )
        self._set_learning_rate()
        self.optimizer.step()
        self.updates += 1
        self._sync()
        if self.average is not None and self.updates % _AVERAGE_EVERY == 0:
            young = _AVERAGE_EVERY / (_AVERAGE_OVER * self.updates)
            _move(self.average, self.online, min(1.0, max(self._average_share, young)))
        errors = (taken - targets).detach().abs().cpu().numpy()
        return UpdateResult(loss.item(), taken.mean().item(), errors)

    def _prepare(self, observations: torch.Tensor) -> torch.Tensor:
        if self.config.random_shift:
            observations = random_shift(observations, self.config.random_shift)
        return self.online.prepare(observations, self._dtype)

    def _autocast(self) -> torch.autocast:
        enabled = self._dtype == torch.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def _set_learning_rate(self) -> None:
        config = self.config
        rate = config.learning_rate
        if config.learning_rate_final is not None:
            share = min(1.0, self.updates / config.learning_rate_steps)
            rate += share * (config.learning_rate_final - rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _sync(self) -> None:
        if self.config.soft_sync is not None:
            _move(self.target, self.online, self.config.soft_sync)
        elif self.config.sync_every is not None and self.updates % self.config.sync_every == 0:
            self.target.load_state_dict(self.online.state_dict())

    def get_state(self) -> dict[str, Any]:
        """Both networks, the optimizer and the count of updates."""
        return {
            "average": None if self.average is None else self.average.state_dict(),
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
        if self.average is not None:
            self.average.load_state_dict(state["average"] or state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        # The configuration may have been changed since: it wins over what was saved.
        for group in self.optimizer.param_groups:
            group["eps"] = self.config.adam_eps
        self.updates = state["updates"]
        self._set_learning_rate()


def uses_bf16(wanted: bool | str, device: torch.device) -> bool:
    """What `agent.bf16` comes to: `auto` is true where it was measured to be faster, with AMX."""
    if wanted == "auto":
        return device.type == "cpu" and torch.cpu._is_amx_tile_supported()
    return bool(wanted)


def _move(network: nn.Module, towards: nn.Module, share: float) -> None:
    """Moves all weights of `network` a share of the way to those of another."""
    with torch.no_grad():
        torch._foreach_lerp_(list(network.parameters()), list(towards.parameters()), share)
