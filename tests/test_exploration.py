"""Epsilon-greedy, ladders of rates, and held actions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mario_ddqn.config import ExplorationConfig
from mario_ddqn.exploration import Exploration, exploration_rate


def make(lanes: int = 1, actions: int = 4, **options) -> Exploration:
    return Exploration(
        ExplorationConfig(**options),
        lanes=range(lanes),
        lane_count=lanes,
        action_count=actions,
        random=np.random.default_rng(1),
    )


def test_decay_by_hand() -> None:
    config = ExplorationConfig(
        exploration_rate=1, exploration_rate_decay=0.5, exploration_rate_min=0.2
    )
    assert [exploration_rate(config, step) for step in (0, 1, 2, 3)] == [1, 0.5, 0.25, 0.2]
    tutorial = ExplorationConfig()
    assert exploration_rate(tutorial, 4_000_000) == pytest.approx(0.3679, abs=1e-3)


def test_ladder_by_hand() -> None:
    """0.4^(1 + 7 i / 3) for four lanes (Horgan et al. 2018, with their epsilon and alpha)."""
    rates = make(4, kind="ladder", ladder_base=0.4, ladder_slope=7).rates(10**9)
    assert rates.tolist() == pytest.approx([0.4, 0.4 ** (10 / 3), 0.4 ** (17 / 3), 0.4**8])


def test_part_of_the_lanes_has_its_part_of_the_ladder() -> None:
    config = ExplorationConfig(kind="ladder")
    random = np.random.default_rng(1)
    whole = Exploration(config, lanes=range(8), lane_count=8, action_count=2, random=random)
    part = Exploration(config, lanes=range(4, 8), lane_count=8, action_count=2, random=random)
    assert whole.rates(0)[4:].tolist() == part.rates(0).tolist()


def test_share_of_random_actions() -> None:
    exploration = make(1000, exploration_rate=0.3, exploration_rate_decay=1)
    greedy = np.zeros(1000, np.int64)
    changed = np.mean([(exploration.choose(greedy, 0) != 0).mean() for _ in range(50)])
    # Of the random ones a quarter is the greedy action.
    assert changed == pytest.approx(0.3 * 0.75, abs=0.01)


def test_no_exploration_is_greedy() -> None:
    exploration = make(50, exploration_rate=0, exploration_rate_min=0, repeat_max=10)
    greedy = np.arange(50) % 4
    assert np.array_equal(exploration.choose(greedy, 5), greedy)


def test_held_actions_have_the_zeta_lengths() -> None:
    """ez-greedy: duration n with weight 1/n^2; mean 1.6 for n up to 3."""
    exploration = make(1, actions=1000, exploration_rate=1, exploration_rate_decay=1, repeat_max=3)
    actions = [int(exploration.choose(np.array([0]), 0)[0]) for _ in range(20_000)]
    changes = 1 + sum(a != b for a, b in itertools.pairwise(actions))
    weights = np.array([1, 1 / 4, 1 / 9])
    mean = (weights * [1, 2, 3]).sum() / weights.sum()
    assert len(actions) / changes == pytest.approx(mean, rel=0.03)


def test_sticky_actions_repeat_the_last_one_in_their_lanes() -> None:
    """Half of the lanes: in those a change of the greedy action is late in a quarter of cases."""
    exploration = make(
        1000,
        exploration_rate=0,
        exploration_rate_min=0,
        sticky=0.25,
        sticky_share=0.5,
    )
    first = exploration.choose(np.zeros(1000, np.int64), 0)
    assert (first == 0).all()
    second = exploration.choose(np.ones(1000, np.int64), 0)
    assert (second[::2] == 1).all()
    assert (second[1::2] == 0).mean() == pytest.approx(0.25, abs=0.05)
    for lane in range(1000):
        exploration.end_episode(lane)
    assert (exploration.choose(np.full(1000, 2), 0) == 2).all()


@pytest.mark.parametrize(("share", "lanes"), [(0, []), (0.25, [3, 7]), (1, list(range(8)))])
def test_share_of_sticky_lanes(share: float, lanes: list[int]) -> None:
    assert np.flatnonzero(make(8, sticky=0.9, sticky_share=share)._sticky).tolist() == lanes


def test_an_action_is_not_held_into_the_next_episode() -> None:
    exploration = make(
        1, actions=1000, exploration_rate=1, exploration_rate_decay=1, repeat_max=10_000
    )
    exploration._left[0] = 50
    exploration.end_episode(0)
    assert exploration._left[0] == 0


def test_state_goes_on_alike() -> None:
    exploration = make(8, kind="ladder", repeat_max=5, sticky=0.25)
    greedy = np.zeros(8, np.int64)
    for _ in range(10):
        exploration.choose(greedy, 0)
    state = exploration.get_state()
    expected = [exploration.choose(greedy, 0).tolist() for _ in range(20)]
    exploration.set_state(state)
    assert [exploration.choose(greedy, 0).tolist() for _ in range(20)] == expected
