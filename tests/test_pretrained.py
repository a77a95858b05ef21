"""The shipped checkpoints play as their cards say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mario_ddqn.evaluate import Rules, play
from mario_ddqn.policy import load_policy
from mario_ddqn.wrappers import make_env

PRETRAINED = Path(__file__).parent.parent / "checkpoints" / "pretrained"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", sorted(PRETRAINED.glob("*.chkpt")), ids=lambda path: path.stem)
def test_it_reaches_the_flag(path: Path) -> None:
    """Of ten episodes; the card's clear rate is 90%, so that five or fewer are one in 600 runs."""
    assert path.stat().st_size < 8_000_000
    policy = load_policy(path)
    assert policy.config.env.stage == path.stem
    env = make_env(policy.config.env)
    outcomes = list(play(policy.greedy_actions, env, Rules(seed=1), 10))
    assert sum(outcome.flag for outcome in outcomes) > 5
