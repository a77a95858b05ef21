"""stable-baselines3's DQN at its defaults, on a stage as configs/ddqn.yaml sees and rewards it.

    python scripts/peer_learning.py --stage 1-1 --seconds 1800 --episodes 100

Prints one line of JSON: every evaluation of greedy no-op starts (seconds are those
of training, evaluations left out), and what the best policy of them comes to in
a longer one. Used by bench.py and study.py; needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from mario_ddqn.config_file import load_config
from mario_ddqn.evaluate import Evaluation, Rules, evaluate, measure
from mario_ddqn.wrappers import make_env

ROOT = Path(__file__).parent.parent
# What it makes in half an hour here. Its exploration rate falls over the first tenth of what
# `learn` is told, so that a larger number would be unfair.
_TOTAL_STEPS = 120_000
# The default of 1,000,000 takes 56 GB; of this one no transition is lost within an hour.
_BUFFER = 200_000


class _Evaluations(BaseCallback):
    """Evaluates every so often, and ends the training at its goal or when its time is up."""

    def __init__(self, env: Any, options: argparse.Namespace) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.best: Evaluation | None = None
        self.best_weights: dict[str, Any] = {}
        self.first_flag: int | None = None
        self._env = env
        self._options = options
        self._began = time.monotonic()
        self._evaluating = 0.0
        self._next_at = 60 * options.every_minutes

    def greedy(self, observations: np.ndarray) -> np.ndarray:
        """uint8 [batch, stack, height, width] to int64 [batch]."""
        actions: np.ndarray = self.model.predict(observations, deterministic=True)[0]
        return actions

    def is_wanted(self) -> bool:
        """Its goal is not reached, and its time not up yet."""
        reached = any(line["mean_x"] >= self._options.until_mean_x for line in self.lines)
        return not reached and self._elapsed() < float(self._options.seconds)

    def _elapsed(self) -> float:
        """Seconds of training so far, without those of the evaluations."""
        return time.monotonic() - self._began - self._evaluating

    def _on_step(self) -> bool:
        if self.first_flag is None and self.locals["infos"][0]["flag_get"]:
            self.first_flag = self.num_timesteps
        elapsed = self._elapsed()
        if elapsed < self._next_at:
            return True
        began = time.monotonic()
        self._next_at += 60 * self._options.every_minutes
        result = evaluate(self.greedy, self._env, Rules(spread=True), self._options.starts)
        if result.better_than(self.best):
            self.best = result
            self.best_weights = copy.deepcopy(self.model.policy.state_dict())
        self._evaluating += time.monotonic() - began
        step = {"step": self.num_timesteps, "seconds": round(elapsed, 1)}
        self.lines.append({**step, **dataclasses.asdict(result)})
        return self.is_wanted()


def main() -> None:
    """Trains, evaluates, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", default="1-1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800, help="of training at most")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the environment"
    )
    parser.add_argument("--until-mean-x", type=float, default=math.inf, help="ends the training")
    parser.add_argument("--every-minutes", type=float, default=2, help="between evaluations")
    parser.add_argument("--starts", type=int, default=31, help="episodes of an evaluation")
    parser.add_argument("--episodes", type=int, default=0, help="of the last evaluation; 0: none")
    parser.add_argument("--evaluation-seed", type=int, default=0)
    options = parser.parse_args()
    changes = [f"env.stage={options.stage}", *options.set]
    config = load_config(ROOT / "configs" / "ddqn.yaml", changes).env
    env = make_env(config)
    model = DQN("CnnPolicy", make_env(config), buffer_size=_BUFFER, device="cpu", seed=options.seed)
    callback = _Evaluations(env, options)
    while callback.is_wanted():
        model.learn(_TOTAL_STEPS, callback=callback, reset_num_timesteps=False)
    result: dict[str, Any] = {
        "first_flag_step": callback.first_flag,
        "steps": callback.num_timesteps,
    }
    if options.episodes and callback.best_weights:
        model.policy.load_state_dict(callback.best_weights)
        # As evaluate.py plays: with the game's own time limit only.
        whole = make_env(dataclasses.replace(config, stall_steps=None, max_steps=None))
        both = measure(callback.greedy, whole, options.evaluation_seed, options.episodes)
        for name, played in zip(("greedy", "sticky"), both.values(), strict=True):
            del played["episodes"]
            result |= {f"{name}_{key}": value for key, value in played.items()}
    print(json.dumps({"evaluations": callback.lines, "result": result}))


if __name__ == "__main__":
    main()
