"""Rings and replay memory, with small numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mario_ddqn.frames import GpuFrames, RamFrames
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.rings import FINAL, FIRST, TERMINATED, Rings
from mario_ddqn.samplers import UniformSampler
from mario_ddqn.sizing import transition_bytes

SHAPE = (2, 2)


def frame(number: int) -> np.ndarray:
    return np.full(SHAPE, number % 256, np.uint8)


def memory(rings: Rings, *, stack: int = 3, n_step: int = 1, gamma: float = 0.5) -> ReplayMemory:
    cpu = torch.device("cpu")
    return ReplayMemory(
        rings,
        RamFrames(rings, cpu) if rings.window == rings.capacity else GpuFrames(rings, cpu),
        stack=stack,
        n_step=n_step,
        gamma=gamma,
        sampler=UniformSampler(rings, np.random.default_rng(0)),
        device=cpu,
    )


def write_episode(
    rings: Rings, lane: int, first_frame: int, rewards: list[float], *, end: str | None
) -> None:
    """Frames first_frame, first_frame + 1, …; action i in the i-th; the end as told."""
    rings.begin(lane, frame(first_frame))
    for i, reward in enumerate(rewards):
        last = i == len(rewards) - 1
        rings.add(
            lane,
            i % 256,
            reward,
            frame(first_frame + i + 1),
            terminated=last and end == "terminated",
            truncated=last and end == "truncated",
        )


def stacks_of(batch, i: int) -> tuple[list[int], list[int]]:
    first = batch.observations[i, :, 0, 0].tolist()
    second = batch.next_observations[i, :, 0, 0].tolist()
    return first, second


def one(replay: ReplayMemory, slot: int, lane: int = 0):
    return replay.gather(np.array([lane]), np.array([slot]))


def drawn_from(replay: ReplayMemory, count: int) -> tuple[np.ndarray, np.ndarray]:
    batch = replay.sample(count)
    return batch.lanes, batch.slots


def test_slots_of_an_episode() -> None:
    rings = Rings(1, 50, SHAPE)
    write_episode(rings, 0, 10, [1, 2], end="terminated")
    assert rings.heads[0] == 3
    assert rings.flags[0, :3].tolist() == [FIRST, TERMINATED, FINAL]
    assert rings.frames[0, :3, 0, 0].tolist() == [10, 11, 12]
    assert rings.actions[0, :2].tolist() == [0, 1]
    write_episode(rings, 0, 20, [3], end=None)
    assert rings.heads[0] == 4
    assert rings.flags[0, 3:5].tolist() == [FIRST, 0]


def test_stack_repeats_the_first_frame_and_never_reaches_over_the_start() -> None:
    rings = Rings(1, 60, SHAPE)
    write_episode(rings, 0, 10, [1, 1, 1], end="truncated")  # slots 0..3
    write_episode(rings, 0, 50, [1, 1, 1, 1], end=None)  # slots 4..8
    replay = memory(rings)
    assert stacks_of(one(replay, 4), 0) == ([50, 50, 50], [50, 50, 51])
    assert stacks_of(one(replay, 5), 0) == ([50, 50, 51], [50, 51, 52])
    assert stacks_of(one(replay, 7), 0) == ([51, 52, 53], [52, 53, 54])
    assert stacks_of(one(replay, 0), 0) == ([10, 10, 10], [10, 10, 11])


def test_n_step_returns_by_hand() -> None:
    """Three steps, gamma 1/2: r0 + r1/2 + r2/4, and 1/8 of the value after them."""
    rings = Rings(1, 60, SHAPE)
    write_episode(rings, 0, 10, [1, 2, 4, 8], end=None)
    batch = one(memory(rings, n_step=3), 0)
    assert batch.rewards.tolist() == [1 + 1 + 1]
    assert batch.discounts.tolist() == [0.125]
    assert stacks_of(batch, 0)[1] == [11, 12, 13]
    assert batch.actions.tolist() == [0]
    later = one(memory(rings, n_step=3), 1)
    assert later.rewards.tolist() == [2 + 2 + 2]
    assert stacks_of(later, 0)[1] == [12, 13, 14]


def test_n_step_return_stops_at_a_terminal_step() -> None:
    rings = Rings(1, 60, SHAPE)
    write_episode(rings, 0, 10, [1, 2, 4], end="terminated")  # slots 0..3
    write_episode(rings, 0, 50, [100, 100, 100], end=None)
    replay = memory(rings, n_step=5)
    for slot, expected in [(0, 1 + 1 + 1), (1, 2 + 2), (2, 4)]:
        batch = one(replay, slot)
        assert batch.rewards.tolist() == [expected]
        assert batch.discounts.tolist() == [0]


def test_n_step_return_asks_early_at_a_truncation() -> None:
    rings = Rings(1, 60, SHAPE)
    write_episode(rings, 0, 10, [1, 2, 4], end="truncated")
    write_episode(rings, 0, 50, [100, 100, 100], end=None)
    replay = memory(rings, n_step=5)
    for slot, rewards, discount in [(0, 3, 0.125), (1, 4, 0.25), (2, 4, 0.5)]:
        batch = one(replay, slot)
        assert batch.rewards.tolist() == [rewards]
        assert batch.discounts.tolist() == [discount]
        assert stacks_of(batch, 0)[1] == [11, 12, 13]


def test_an_interrupted_episode_is_cut_like_a_truncation() -> None:
    rings = Rings(2, 60, SHAPE)
    write_episode(rings, 0, 10, [1, 2], end=None)
    rings.cut(0)
    assert rings.flags[0, 2] == FINAL
    assert rings.heads[0] == 3
    rings.cut(0)
    assert rings.heads[0] == 3
    rings.begin(1, frame(1))
    rings.cut(1)
    assert rings.heads[1] == 0
    batch = one(memory(rings, n_step=5), 1)
    assert (batch.rewards.tolist(), batch.discounts.tolist()) == ([2], [0.5])


def test_what_may_be_sampled() -> None:
    """Never an episode's last frame, never an unfinished return, every other transition."""
    rings = Rings(2, 100, SHAPE)
    write_episode(rings, 0, 10, [1, 1, 1], end="terminated")  # slots 0..3
    write_episode(rings, 0, 50, [1, 1, 1, 1], end=None)  # slots 4..8, head 8
    write_episode(rings, 1, 100, [1, 1, 1], end=None)  # slots 0..3, head 3
    replay = memory(rings, n_step=2)
    drawn = set()
    for _ in range(50):
        lanes, slots = drawn_from(replay, 20)
        drawn |= set(zip(lanes.tolist(), slots.tolist(), strict=True))
    # Lane 0: up to 8 - 2, without the final slot 3; lane 1: up to 3 - 2.
    assert drawn == {(0, n) for n in (0, 1, 2, 4, 5, 6)} | {(1, 0), (1, 1)}


def test_an_empty_memory_says_so() -> None:
    replay = memory(Rings(2, 50, SHAPE))
    assert len(replay) == 0
    with pytest.raises(ValueError, match="empty"):
        replay.sample(4)


def test_a_ring_too_small_for_its_returns_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        memory(Rings(1, 36, SHAPE), stack=4, n_step=1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.sampled_from(["terminated", "truncated"])),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_sample_is_what_a_plain_list_says(
    episodes: list[tuple[int, str]], n_step: int, stack: int
) -> None:
    """Against a memory that forgets nothing, over wrap-arounds and all kinds of ends."""
    rings = Rings(1, 64, SHAPE)
    log: list[tuple[int, list[int], list[float], str]] = []  # first slot, frames, rewards, end
    slot, number = 0, 0
    for length, end in episodes:
        frames = [(number + i) % 256 for i in range(length + 1)]
        rewards = [float(i % 7) for i in range(length)]
        write_episode(rings, 0, number, rewards, end=end)
        log.append((slot, frames, rewards, end))
        slot += length + 1
        number += length + 1
    replay = memory(rings, stack=stack, n_step=n_step)
    if len(replay) == 0:
        return
    lanes, slots = drawn_from(replay, 64)
    batch = replay.gather(lanes, slots)
    for i, start in enumerate(slots.tolist()):
        first, frames, rewards, end = next(e for e in reversed(log) if e[0] <= start)
        t = start - first
        assert t < len(rewards)
        steps = min(n_step, len(rewards) - t)
        ends_here = t + steps == len(rewards) and end == "terminated"
        expected = [frames[max(0, t - k)] for k in range(stack - 1, -1, -1)]
        after = [frames[max(0, t + steps - k)] for k in range(stack - 1, -1, -1)]
        assert stacks_of(batch, i) == (expected, after)
        assert batch.rewards[i].item() == sum(0.5**k * rewards[t + k] for k in range(steps))
        assert batch.discounts[i].item() == (0 if ends_here else 0.5**steps)
        assert start > slot - 64


def test_lost_slots_are_not_sampled() -> None:
    rings = Rings(1, 100, SHAPE)
    write_episode(rings, 0, 0, [0] * 60, end=None)
    rings.floors[0] = 40
    replay = memory(rings, stack=3)
    _, slots = drawn_from(replay, 200)
    assert slots.min() == 42
    assert slots.max() == 59


def test_bytes_a_transition() -> None:
    """At most 7.2 KB, 31 times less than two float32 stacks of four frames."""
    rings = Rings(1, 1000, (84, 84))
    arrays = (rings.frames, rings.actions, rings.rewards, rings.flags)
    each = sum(array.nbytes for array in arrays) / 1000
    assert each == transition_bytes(84) == 7062
    assert 2 * 4 * 84 * 84 * 4 / each > 31


def test_lanes_are_drawn_by_what_they_hold() -> None:
    rings = Rings(2, 2000, SHAPE)
    write_episode(rings, 0, 0, [0] * 900, end=None)
    write_episode(rings, 1, 0, [0] * 100, end=None)
    lanes, _ = drawn_from(memory(rings), 20_000)
    assert abs((lanes == 0).mean() - 0.9) < 0.01


def test_state_brings_back_the_same_draws() -> None:
    rings = Rings(1, 100, SHAPE)
    write_episode(rings, 0, 0, [0] * 60, end=None)
    replay = memory(rings)
    replay.sample(5)
    state = replay.get_state()
    expected = drawn_from(replay, 10)
    replay.set_state(state)
    assert np.array_equal(drawn_from(replay, 10), expected)


def test_frames_on_a_device_of_their_own_give_the_same_batches() -> None:
    """GpuFrames, with the CPU as the device: what a window of the newest slots hands on."""
    ram, gpu = Rings(2, 300, SHAPE), Rings(2, 300, SHAPE, window=50)
    replays = [memory(rings, n_step=3) for rings in (ram, gpu)]
    number = 0
    for round_number in range(60):
        for rings in (ram, gpu):
            end = ("terminated", "truncated")[round_number % 2]
            write_episode(rings, round_number % 2, number, [1.0, 2.0] * 10, end=end)
        number += 21
        heads = replays[1]._frames.refresh()
        assert heads.tolist() == (gpu.heads - 1).tolist()
    lanes = np.repeat([0, 1], 150)
    slots = np.concatenate(
        [gpu.heads[0] - 260 + np.arange(150), gpu.heads[1] - 260 + np.arange(150)]
    )
    final = ram.flags[lanes, slots % 300] & FINAL
    batches = [replay.gather(lanes[final == 0], slots[final == 0]) for replay in replays]
    for column in ("observations", "next_observations", "rewards", "discounts", "actions"):
        assert torch.equal(getattr(batches[0], column), getattr(batches[1], column))
    drawn = replays[1].sample(500)
    assert drawn.observations.shape == (500, 3, *SHAPE)
