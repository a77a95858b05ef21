"""The actor: what it writes is what the environments did."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from mario_ddqn.actor import Actor, make_actor
from mario_ddqn.config import (
    Config,
    EnvConfig,
    ExplorationConfig,
    StartStatesConfig,
    TrainConfig,
)
from mario_ddqn.frames import RamFrames
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.rings import FINAL, FIRST, TERMINATED, Rings
from mario_ddqn.samplers import UniformSampler
from mario_ddqn.wrappers import make_env

ENV = EnvConfig(actions=["right+B", "right+A+B"], stall_steps=40, size=84, noop_max=10)


def config(lanes: int = 2, seed: int = 1, **changes) -> Config:
    exploration = ExplorationConfig(kind="ladder", repeat_max=4)
    return Config(
        seed=seed, env=ENV, exploration=exploration, train=TrainConfig(lanes=lanes), **changes
    )


def actor_of(rings: Rings, lanes: int = 2, **changes) -> Actor:
    return make_actor(config(lanes, **changes), rings, range(lanes), {})


def always(action: int):
    return lambda observations: np.full(len(observations), action)


def test_rings_hold_what_the_environments_did() -> None:
    """A lane that never explores, against the same environment driven by hand."""
    rings = Rings(1, 600, (84, 84))
    greedy = dataclasses.replace(
        config(1), exploration=ExplorationConfig(exploration_rate=0, exploration_rate_min=0)
    )
    actor = make_actor(greedy, rings, range(1), {})
    episodes = []
    while len(episodes) < 2:
        episodes += actor.step(always(0), 0)
    env = make_env(ENV)
    observation, _ = env.reset(seed=int(np.random.SeedSequence([1, 3, 0]).generate_state(1)[0]))
    slot = 0
    for episode in episodes:
        over, total, first = False, 0.0, slot
        assert rings.flags[0, slot] & FIRST
        while not over:
            assert np.array_equal(rings.frames[0, slot], observation[-1])
            observation, reward, terminated, truncated, info = env.step(np.int64(0))
            over = terminated or truncated
            total += float(reward)
            assert rings.actions[0, slot] == 0
            assert rings.rewards[0, slot] == np.float32(reward)
            assert bool(rings.flags[0, slot] & TERMINATED) == terminated
            slot += 1
        assert np.array_equal(rings.frames[0, slot], observation[-1])
        assert rings.flags[0, slot] == FINAL
        assert (episode.steps, episode.reward) == (slot - first, total)
        assert (episode.x, episode.death, episode.flag) == (info["x_pos"], True, False)
        slot += 1
        observation, _ = env.reset()


def test_lanes_do_not_disturb_each_other() -> None:
    """Four lanes on one emulator see what one lane alone sees."""

    def frames(lanes: int) -> np.ndarray:
        rings = Rings(lanes, 200, (84, 84))
        actor = actor_of(rings, lanes)
        for _ in range(40):
            actor.step(always(1), 0)
        return rings.frames[0, :30].copy()

    # The first lane explores with the same numbers only if it explores not at all.
    one, four = frames(1), frames(4)
    assert one.shape == four.shape
    assert np.array_equal(one[0], four[0])


def test_batches_out_of_real_play_are_real_stacks() -> None:
    rings = Rings(2, 400, (84, 84))
    actor = actor_of(rings)
    seen: dict[int, list[np.ndarray]] = {0: [], 1: []}

    def policy(observations: np.ndarray) -> np.ndarray:
        for lane, observation in enumerate(observations):
            seen[lane].append(observation.copy())
        return np.ones(len(observations), np.int64)

    ended = 0
    for _ in range(120):
        ended += len(actor.step(policy, 0))
    assert ended > 0
    replay = ReplayMemory(
        rings,
        RamFrames(rings, torch.device("cpu")),
        stack=4,
        n_step=3,
        gamma=0.9,
        sampler=UniformSampler(rings, np.random.default_rng(0)),
        device=torch.device("cpu"),
    )
    batch = replay.sample(64)
    known = {observation.tobytes() for lane in seen.values() for observation in lane}
    assert all(row.numpy().tobytes() in known for row in batch.observations)


def test_state_goes_on_alike() -> None:
    rings = Rings(2, 400, (84, 84))
    actor = actor_of(rings)
    for _ in range(30):
        actor.step(always(1), 0)
    state = actor.get_state()
    heads = rings.heads.copy()
    expected_episodes = [actor.step(always(1), 0) for _ in range(60)]
    expected = (rings.frames.copy(), rings.actions.copy(), rings.heads.copy())
    rings.heads[:] = heads
    actor.set_state(state)
    assert [actor.step(always(1), 0) for _ in range(60)] == expected_episodes
    assert np.array_equal(rings.frames, expected[0])
    assert np.array_equal(rings.actions, expected[1])
    assert np.array_equal(rings.heads, expected[2])


def test_some_episodes_start_where_mario_has_been() -> None:
    rings = Rings(2, 4000, (84, 84))
    actor = actor_of(
        rings, start_states=StartStatesConfig(share=0.5, cell_pixels=32, alive_steps=10)
    )
    episodes = []
    for _ in range(1200):
        episodes += actor.step(always(1), 0)
    shares = [episode.from_start for episode in episodes]
    assert len(episodes) > 20
    assert 0.2 < sum(shares) / len(shares) < 0.8
    state = actor.get_state()["start_states"]
    xs = {cell[-1] for cell in state["cells"]}
    assert len(xs) > 5
    # Counted from where they start, and going on alive from there.
    elsewhere = [episode for episode in episodes if not episode.from_start]
    assert any(episode.x > 300 for episode in elsewhere)
    assert all(episode.progress <= episode.x for episode in elsewhere)


def test_an_actor_that_follows_another_cuts_what_it_left() -> None:
    rings = Rings(2, 400, (84, 84))
    actor = actor_of(rings)
    for _ in range(10):
        actor.step(always(1), 0)
    heads = rings.heads.copy()
    actor_of(rings).step(always(1), 0)
    assert rings.flags[0, heads[0]] == FINAL
    assert rings.flags[0, heads[0] + 1] & FIRST
    assert rings.heads[0] == heads[0] + 2


def test_evaluation_leaves_the_lanes_alone() -> None:
    rings, other = Rings(2, 400, (84, 84)), Rings(2, 400, (84, 84))
    for ring, evaluates in ((rings, True), (other, False)):
        actor = actor_of(ring)
        for step in range(50):
            actor.step(always(1), 0)
            if step == 20 and evaluates:
                result = actor.evaluate(always(0))
                assert (result.episodes, result.clear_rate) == (31, 0)
                assert 200 < result.mean_x < 500
    assert np.array_equal(rings.frames, other.frames)
    assert np.array_equal(rings.rewards, other.rewards)
