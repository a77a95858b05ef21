"""What bench.py measures mario-train against, each in a process of its own.

    python scripts/peers.py sb3 --every 4 --seconds 40
    python scripts/peers.py tutorial --every 4 --seconds 40

prints one JSON object with environment steps a second while learning.

- `sb3`: stable-baselines3's DQN with CnnPolicy (the same convolutions and hidden
  layer) on mario-train's environment.
- `tutorial`: the loop, network, wrappers and memory of the PyTorch tutorial
  "Train a Mario-playing RL Agent", on gym-super-mario-bros and nes-py, written
  anew from its description: grey and resized as float tensors, a deque of stacked
  float32 states.
- `sb3-learn`: stable-baselines3's DQN at its defaults until 20 greedy episodes
  reach a mean x (`--mean-x`), for `--seconds` at most.
- `tutorial-env`: that environment alone, with random actions.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn

from mario_ddqn.actions import action_names, button_byte
from mario_ddqn.config import EnvConfig

_WARM_UP_STEPS = 500
_BATCH = 32
_GAMMA = 0.9
_LEARNING_RATE = 0.00025


class TutorialEnv:
    """gym-super-mario-bros with the tutorial's wrappers: skip 4, grey, 84x84, stack 4, floats."""

    def __init__(self) -> None:
        from gym_notices import notices

        notices.notices.clear()
        from gym_super_mario_bros.smb_env import SuperMarioBrosEnv

        self._env = SuperMarioBrosEnv(target=(1, 1))
        self._buttons = [button_byte(name) for name in action_names("tutorial")]
        self._stack: deque[torch.Tensor] = deque(maxlen=4)

    def reset(self) -> torch.Tensor:
        """float32 (4, 84, 84)."""
        first = self._env.reset()
        picture = self._observe(first[0] if isinstance(first, tuple) else first)
        self._stack.extend([picture] * 4)
        return torch.stack(list(self._stack))

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        """Four frames of an action."""
        total = 0.0
        for _ in range(4):
            result = self._env.step(self._buttons[action])
            total += float(result[1])
            if result[2]:
                break
        self._stack.append(self._observe(result[0]))
        return torch.stack(list(self._stack)), total, bool(result[2])

    @staticmethod
    def _observe(screen: np.ndarray) -> torch.Tensor:
        picture = torch.tensor(np.transpose(screen, (2, 0, 1)).copy(), dtype=torch.float)
        gray = (picture * torch.tensor([0.2989, 0.587, 0.114])[:, None, None]).sum(0)
        small = nn.functional.interpolate(
            gray[None, None], (84, 84), mode="bilinear", antialias=True
        )
        return small[0, 0] / 255


class _FloatNet(nn.Sequential):
    """The tutorial's network, for float32 [batch, 4, 84, 84] from 0 to 1."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 2),
        )


def tutorial(every: int, seconds: float) -> float:
    """The tutorial's training loop; environment steps a second."""
    env = TutorialEnv()
    online, target = _FloatNet(), _FloatNet()
    optimizer = torch.optim.Adam(online.parameters(), lr=_LEARNING_RATE)
    memory: deque[tuple[torch.Tensor, ...]] = deque(maxlen=100_000)
    state, steps, began = env.reset(), 0, 0.0
    while True:
        if steps == _WARM_UP_STEPS:
            began = time.monotonic()
        if steps > _WARM_UP_STEPS and time.monotonic() - began > seconds:
            return (steps - _WARM_UP_STEPS) / (time.monotonic() - began)
        with torch.no_grad():
            values = online(state[None])
        action = int(values.argmax()) if random.random() < 0.5 else random.randrange(2)
        following, reward, done = env.step(action)
        memory.append(
            (state, following, torch.tensor([action]), torch.tensor([reward]), torch.tensor([done]))
        )
        steps += 1
        if steps >= _WARM_UP_STEPS and steps % every == 0:
            batch = random.sample(memory, _BATCH)
            states, followings, actions, rewards, dones = map(torch.stack, zip(*batch, strict=True))
            with torch.no_grad():
                best = online(followings).argmax(1, keepdim=True)
                future = target(followings).gather(1, best)
                wanted = rewards + (1 - dones.float()) * _GAMMA * future
            loss = nn.functional.smooth_l1_loss(online(states).gather(1, actions), wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss.item()
        state = env.reset() if done else following


def tutorial_env(seconds: float) -> float:
    """Steps a second of the tutorial's environment alone."""
    torch.set_num_threads(1)
    env = TutorialEnv()
    env.reset()
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        _, _, done = env.step(random.randrange(2))
        steps += 1
        if done:
            env.reset()
    return steps / (time.monotonic() - began)


def sb3_env() -> Any:
    """mario-train's environment as stable-baselines3 takes it, with the tutorial's actions."""
    from mario_ddqn.wrappers import make_env

    return make_env(EnvConfig(actions="tutorial"))


def sb3(every: int, seconds: float) -> float:
    """stable-baselines3's DQN; environment steps a second."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        began = 0.0
        rate = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == _WARM_UP_STEPS:
                self.began = time.monotonic()
            elapsed = time.monotonic() - self.began
            if self.num_timesteps > _WARM_UP_STEPS and elapsed > seconds:
                self.rate = (self.num_timesteps - _WARM_UP_STEPS) / elapsed
                return False
            return True

    model = DQN(
        "CnnPolicy",
        sb3_env(),
        learning_rate=_LEARNING_RATE,
        buffer_size=20_000,
        learning_starts=_WARM_UP_STEPS,
        batch_size=_BATCH,
        gamma=_GAMMA,
        train_freq=every,
        gradient_steps=1,
        target_update_interval=10_000,
        exploration_initial_eps=0.5,
        exploration_final_eps=0.5,
        device="cpu",
    )
    clock = Clock()
    model.learn(10_000_000, callback=clock)
    return clock.rate


def main() -> None:
    """Measures one peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["sb3", "tutorial", "tutorial-env"])
    parser.add_argument("--every", type=int, default=4, help="environment steps an update")
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    if options.peer == "tutorial-env":
        rate = tutorial_env(options.seconds)
    else:
        rate = {"sb3": sb3, "tutorial": tutorial}[options.peer](options.every, options.seconds)
    print(json.dumps({"steps_per_second": rate}))


if __name__ == "__main__":
    main()
