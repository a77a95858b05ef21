"""Playing and measuring."""

from __future__ import annotations

import numpy as np
import pytest

from mario_ddqn.config import EnvConfig
from mario_ddqn.evaluate import Evaluation, Outcome, Rules, play, summary, wilson_interval
from mario_ddqn.wrappers import make_env

ENV = EnvConfig(actions=["right+B", "NOOP", "right+A+B"])


def first_action(observations: np.ndarray) -> np.ndarray:
    return np.zeros(len(observations), np.int64)


def test_wilson_interval_by_hand() -> None:
    """Of 90 in 100: (0.9 + 0.0192 -+ 0.0592...) / 1.0384, as in Wilson's formula."""
    low, high = wilson_interval(90, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)
    assert wilson_interval(0, 10)[0] == 0
    assert wilson_interval(10, 10)[1] == 1
    assert wilson_interval(0, 0) == (0, 1)


def test_running_into_the_first_goomba() -> None:
    outcomes = list(play(first_action, make_env(ENV), Rules(seed=3), 3))
    assert [outcome.episode for outcome in outcomes] == [1, 2, 3]
    assert all(not outcome.flag for outcome in outcomes)
    assert all(250 < outcome.x < 450 for outcome in outcomes)
    assert all(0 <= outcome.noops <= 30 for outcome in outcomes)
    again = list(play(first_action, make_env(ENV), Rules(seed=3), 3))
    assert again == outcomes
    other = list(play(first_action, make_env(ENV), Rules(seed=4), 3))
    assert [o.noops for o in other] != [o.noops for o in outcomes]


def test_spread_starts_are_all_of_them_and_go_the_same_way_each_time() -> None:
    """31 starts, each once; a start that is played again ends as it did."""
    outcomes = list(play(first_action, make_env(ENV), Rules(spread=True), 31))
    assert [outcome.noops for outcome in outcomes] == list(range(31))
    drawn = list(play(first_action, make_env(ENV), Rules(seed=5), 20))
    assert all((o.x, o.steps) == (outcomes[o.noops].x, outcomes[o.noops].steps) for o in drawn)
    few = play(first_action, make_env(ENV), Rules(spread=True), 4)
    assert [outcome.noops for outcome in few] == [0, 7, 15, 23]


def test_of_equal_evaluations_the_newer_is_the_better() -> None:
    best = Evaluation(clear_rate=0.5, mean_x=2000, episodes=31)
    assert best.better_than(None)
    assert best.better_than(Evaluation(0.5, 2000, 31))
    assert best.better_than(Evaluation(0.4, 3000, 31))
    assert not best.better_than(Evaluation(0.5, 2001, 31))


def test_epsilon_and_stickiness_change_the_play() -> None:
    plain = list(play(first_action, make_env(ENV), Rules(seed=1, noop_max=0), 1))
    random = list(play(first_action, make_env(ENV), Rules(seed=1, noop_max=0, epsilon=0.9), 1))
    assert random[0].steps != plain[0].steps

    count = 0

    def alternate(observations: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        return np.full(len(observations), count % 2)

    sticky = next(play(alternate, make_env(ENV), Rules(seed=1, noop_max=0, sticky=0.25), 1))
    # The policy is asked in about three of four steps.
    assert 0.6 < count / sticky.steps < 0.9


def test_summary_by_hand() -> None:
    def outcome(number: int, x: int, flag: bool, time: int) -> Outcome:
        return Outcome(number, 0, x, flag, 10, time, 100, 1.0, 1, 1)

    result = summary([outcome(1, 100, False, 5), outcome(2, 3000, True, 300)])
    assert (result["clears"], result["clear_rate"], result["mean_x"]) == (1, 0.5, 1550)
    assert result["mean_time_left"] == 300
    assert result["episodes"][1]["flag"] is True
    assert summary([])["mean_time_left"] is None
    assert result["clear_rate_interval"] == pytest.approx([0.0945, 0.9055], abs=1e-4)
