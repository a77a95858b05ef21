"""Playing without learning: the one measure of how well a policy plays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mario_ddqn.env import MarioEnv
from mario_ddqn.wrappers import FrameStack

# uint8 [batch, stack, height, width] -> int64 [batch]
GreedyActions = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Evaluation:
    """What a policy is worth, as far as so many episodes tell."""

    clear_rate: float
    mean_x: float
    episodes: int

    def better_than(self, other: Evaluation | None) -> bool:
        """By clear rate, then by x; of equals the newer, `self`, has learned longer."""
        return other is None or (self.clear_rate, self.mean_x) >= (other.clear_rate, other.mean_x)


@dataclass(frozen=True)
class Outcome:
    """One episode: the furthest x in pixels, and what it came to."""

    episode: int
    noops: int
    x: int
    flag: bool
    steps: int
    time_left: int
    score: int
    reward: float
    world: int
    stage: int


@dataclass(frozen=True)
class Rules:
    """How episodes of an evaluation are played.

    Each starts after 0 to `noop_max` frames without buttons, drawn uniformly
    with `seed`, or, with `spread`, from the least to the most in even steps:
    one start always goes the same way in greedy play, so that `noop_max` + 1
    episodes tell exactly what a policy is worth. With probability `epsilon` an
    action is random; with probability `sticky` the last one is repeated
    instead (Machado et al. 2018).
    """

    seed: int = 0
    noop_max: int = 30
    spread: bool = False
    epsilon: float = 0.0
    sticky: float = 0.0


def play(
    greedy_actions: GreedyActions, env: FrameStack, rules: Rules, episodes: int
) -> Iterator[Outcome]:
    """Plays episodes one after the other, each yielded as it ends."""
    random = np.random.default_rng([rules.seed, 4])
    game = env.unwrapped
    assert isinstance(game, MarioEnv)
    action_count = len(game.action_names)
    for episode in range(1, episodes + 1):
        noops = int(random.integers(rules.noop_max + 1))
        if rules.spread:
            noops = (episode - 1) * (rules.noop_max + 1) // episodes
        observation, info = env.reset(options={"noops": noops})
        action = 0
        best_x, steps, total = info["x_pos"], 0, 0.0
        over = flag = False
        while not over:
            chance_random, chance_sticky = random.random(2)
            if steps == 0 or chance_sticky >= rules.sticky:
                action = (
                    int(random.integers(action_count))
                    if chance_random < rules.epsilon
                    else int(greedy_actions(observation[None])[0])
                )
            observation, reward, terminated, truncated, info = env.step(np.int64(action))
            over = terminated or truncated
            flag = flag or info["flag_get"]
            best_x = max(best_x, info["x_pos"])
            steps += 1
            total += float(reward)
        yield Outcome(
            episode=episode,
            noops=noops,
            x=best_x,
            flag=flag,
            steps=steps,
            time_left=info["time"],
            score=info["score"],
            reward=round(total, 3),
            world=info["world"],
            stage=info["stage"],
        )


def evaluate(
    greedy_actions: GreedyActions, env: FrameStack, rules: Rules, episodes: int
) -> Evaluation:
    """Plays episodes and sums them up."""
    outcomes = list(play(greedy_actions, env, rules, episodes))
    result = summary(outcomes)
    return Evaluation(result["clear_rate"], result["mean_x"], len(outcomes))


def measure(
    greedy_actions: GreedyActions, env: FrameStack, seed: int, episodes: int
) -> dict[str, dict[str, Any]]:
    """Summaries of greedy play and of greedy play with sticky actions, 0 to 30 no-op frames."""
    return {
        name: summary(list(play(greedy_actions, env, Rules(seed=seed, sticky=sticky), episodes)))
        for name, sticky in (("greedy", 0.0), ("greedy, sticky actions 0.25", 0.25))
    }


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a rate, 95% by default (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    scale = 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / scale
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Clear rate with its interval, mean x, mean time left of the clears, and each episode."""
    clears = [outcome for outcome in outcomes if outcome.flag]
    low, high = wilson_interval(len(clears), len(outcomes))
    return {
        "episodes_played": len(outcomes),
        "clears": len(clears),
        "clear_rate": len(clears) / max(1, len(outcomes)),
        "clear_rate_interval": [round(low, 4), round(high, 4)],
        "mean_x": sum(outcome.x for outcome in outcomes) / max(1, len(outcomes)),
        "mean_time_left": (
            sum(outcome.time_left for outcome in clears) / len(clears) if clears else None
        ),
        "episodes": [asdict(outcome) for outcome in outcomes],
    }
