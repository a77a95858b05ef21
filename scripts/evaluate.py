"""Measures how reliably a checkpoint clears a stage.

    python scripts/evaluate.py checkpoints/pretrained/1-1.chkpt --stage 1-1 --episodes 100

The same code as mario-play: greedy policy, one life, 0 to 30 frames without
buttons before each episode (uniform, from --seed), the game's own time limit. Then
the same with sticky actions of probability 0.25 (Machado et al. 2018). Clear rates
come with Wilson's 95% interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from mario_ddqn.config_file import with_overrides
from mario_ddqn.errors import UserError
from mario_ddqn.evaluate import measure
from mario_ddqn.policy import load_policy
from mario_ddqn.wrappers import make_env


def main() -> int:
    """Evaluates and prints; exit code 2 for a wrong checkpoint or stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--stage", help="default: the one it was trained on")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the no-op starts")
    parser.add_argument("--core", default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all episodes")
    options = parser.parse_args()
    try:
        results = evaluate(options)
    except UserError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    print("| play | clear rate | 95% interval | mean x | mean time left |")
    print("|---|---|---|---|---|")
    for name, result in results.items():
        low, high = result["clear_rate_interval"]
        left = result["mean_time_left"]
        print(
            f"| {name} | {result['clear_rate']:.0%} ({result['clears']} of "
            f"{result['episodes_played']}) | {low:.0%} to {high:.0%} | {result['mean_x']:.0f} | "
            f"{'-' if left is None else f'{left:.0f}'} |"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results) + "\n")
    return 0


def evaluate(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Summaries of greedy play and of greedy play with sticky actions."""
    policy = load_policy(options.checkpoint)
    changes = [f"env.core={options.core}", "env.stall_steps=null", "env.max_steps=null"]
    if options.stage is not None:
        changes.append(f"env.stage={options.stage}")
    env_config = with_overrides(policy.config, changes, str(policy.checkpoint)).env
    print(
        f"{policy.checkpoint}, {policy.steps:,} steps of training, stage {env_config.stage}, "
        f"seed {options.seed}"
    )
    env = make_env(env_config)
    results = measure(policy.greedy_actions, env, options.seed, options.episodes)
    env.close()
    return results


if __name__ == "__main__":
    sys.exit(main())
