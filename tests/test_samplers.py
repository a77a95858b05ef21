"""The sum tree, and draws by priority, against sums worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mario_ddqn.config import ReplayConfig
from mario_ddqn.rings import FINAL, FIRST, Rings
from mario_ddqn.samplers import PrioritisedSampler, UniformSampler, make_sampler
from mario_ddqn.sum_tree import SumTree


def filled(lanes: int = 2, capacity: int = 64, slots: int = 10) -> Rings:
    rings = Rings(lanes, capacity, (2, 2))
    rings.flags[:, 0] = FIRST
    rings.heads[:] = slots
    return rings


def prioritised(rings: Rings, *, alpha: float = 1.0, beta: float = 1.0) -> PrioritisedSampler:
    return PrioritisedSampler(rings, np.random.default_rng(0), alpha=alpha, beta=beta)


def test_tree_by_hand() -> None:
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([1.0, 0, 2, 3, 4]))
    assert tree.total == 10
    sums = np.array([0, 0.99, 1, 2.99, 3, 5.99, 6, 9.99])
    assert tree.find(sums).tolist() == [0, 0, 2, 2, 3, 3, 4, 4]
    tree.set(np.array([3]), np.array([0.0]))
    assert tree.total == 7
    assert tree.find(np.array([3.0])).tolist() == [4]


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 40),
    changes=st.lists(
        st.tuples(st.integers(0, 39), st.just(0.0) | st.floats(0.001, 100)), max_size=30
    ),
)
def test_tree_is_the_sum_of_its_leaves(size: int, changes: list[tuple[int, float]]) -> None:
    tree, plain = SumTree(size), np.zeros(size)
    for leaf, value in changes:
        tree.set(np.array([leaf % size]), np.array([value]))
        plain[leaf % size] = value
    assert tree.leaves.tolist() == plain.tolist()
    assert tree.total == pytest.approx(plain.sum())
    if tree.total > 0:
        sums = np.linspace(0, tree.total * 0.999, 20)
        found = tree.find(sums)
        running = np.cumsum(plain)
        assert (running[found] > sums - 1e-6).all()
        assert (running[found] - plain[found] <= sums + 1e-6).all()


def test_draws_are_in_proportion_and_weights_make_up_for_it() -> None:
    rings = filled(lanes=1, slots=4)
    sampler = prioritised(rings)
    low, high = np.array([0]), np.array([4])
    sampler.draw(1, low, high)
    # Priorities 1, 1, 1, 5: an eighth each, and five eighths.
    sampler.learned(np.zeros(4, int), np.arange(4), np.array([0.99, 0.99, 0.99, 4.99], "f4"))
    lanes, slots, weights = sampler.draw(8000, low, high)
    assert lanes.tolist() == [0] * 8000
    counts = np.bincount(slots)
    assert counts.tolist() == pytest.approx([1000, 1000, 1000, 5000], abs=2)
    # (4 * 1/8)^-1 = 2 and (4 * 5/8)^-1 = 0.4, scaled so that the largest is 1.
    assert weights[slots < 3].tolist() == pytest.approx([1.0] * 3000, abs=1e-5)
    assert weights[slots == 3].tolist() == pytest.approx([0.2] * len(weights[slots == 3]), abs=1e-5)


def test_new_transitions_have_the_highest_priority_and_ends_none() -> None:
    rings = filled(lanes=1, slots=3)
    sampler = prioritised(rings)
    sampler.draw(1, np.array([0]), np.array([3]))
    sampler.learned(np.zeros(3, int), np.arange(3), np.array([0.09, 0.09, 8.99], "f4"))
    rings.flags[0, 4] = FINAL
    sampler.draw(1, np.array([1]), np.array([6]))
    assert sampler._tree.leaves[:7].tolist() == pytest.approx([0, 0.1, 9, 9, 0, 9, 0])


def test_overwritten_slots_are_not_touched_by_what_was_learned_before() -> None:
    rings = filled(lanes=1, capacity=8, slots=8)
    sampler = prioritised(rings)
    sampler.draw(1, np.array([0]), np.array([6]))
    sampler.draw(1, np.array([4]), np.array([10]))
    before = sampler._tree.leaves.copy()
    sampler.learned(np.zeros(2, int), np.array([1, 3]), np.array([50, 50], "f4"))
    assert sampler._tree.leaves.tolist() == before.tolist()
    _, slots, _ = sampler.draw(100, np.array([4]), np.array([10]))
    assert set(slots.tolist()) == {4, 5, 6, 7, 8, 9}


def test_state_goes_on_alike_and_lost_slots_are_forgotten() -> None:
    rings = filled(slots=20)
    low, high = np.array([0, 0]), np.array([16, 16])
    sampler = prioritised(rings)
    lanes, slots, _ = sampler.draw(16, low, high)
    sampler.learned(lanes, slots, np.arange(16, dtype=np.float32))
    state = sampler.get_state()
    expected = [part.tolist() for part in sampler.draw(16, low, high)]
    other = prioritised(rings)
    other.set_state(state)
    assert [part.tolist() for part in other.draw(16, low, high)] == expected
    other.set_state(state)
    other.draw(1, low, np.array([5, 16]))
    assert other._tree.leaves[5:16].tolist() == [0] * 11
    assert other._tree.leaves[64:80].all()


def test_a_memory_dealt_out_anew_counts_as_new() -> None:
    sampler = prioritised(filled())
    sampler.draw(4, np.array([0, 0]), np.array([8, 8]))
    other = prioritised(filled(lanes=1, capacity=128))
    other.set_state(sampler.get_state())
    other.draw(4, np.array([0]), np.array([8]))
    assert other._tree.leaves[:9].tolist() == [1.0] * 8 + [0.0]


def test_configuration_chooses() -> None:
    rings, random = filled(), np.random.default_rng(0)
    assert isinstance(make_sampler(ReplayConfig(), rings, random), UniformSampler)
    assert isinstance(make_sampler(ReplayConfig(priority=0.5), rings, random), PrioritisedSampler)
