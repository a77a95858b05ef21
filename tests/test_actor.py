"""The actor: what it writes is what the environments did."""

from __future__ import annotations

import numpy as np
import torch

from mario_ddqn.actor import Actor
from mario_ddqn.config import EnvConfig, ExplorationConfig
from mario_ddqn.exploration import Exploration
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.rings import FINAL, FIRST, TERMINATED, Rings
from mario_ddqn.wrappers import make_env

ENV = EnvConfig(actions=["right+B", "right+A+B"], stall_steps=40, size=84, noop_max=10)


def make_actor(rings: Rings, lanes: int = 2, seed: int = 1) -> Actor:
    exploration = Exploration(
        ExplorationConfig(kind="ladder", repeat_max=4),
        lanes=range(lanes),
        lane_count=lanes,
        action_count=2,
        random=np.random.default_rng(seed),
    )
    envs = [make_env(ENV) for _ in range(lanes)]
    return Actor(envs, exploration, rings, first_lane=0, seeds=[seed + n for n in range(lanes)])


def always(action: int):
    return lambda observations: np.full(len(observations), action)


def test_rings_hold_what_the_environments_did() -> None:
    """A lane that never explores, against the same environment driven by hand."""
    rings = Rings(1, 600, (84, 84))
    exploration = Exploration(
        ExplorationConfig(exploration_rate=0, exploration_rate_min=0),
        lanes=range(1),
        lane_count=1,
        action_count=2,
        random=np.random.default_rng(0),
    )
    actor = Actor([make_env(ENV)], exploration, rings, first_lane=0, seeds=[7])
    episodes = []
    while len(episodes) < 2:
        episodes += actor.step(always(0), 0)
    env = make_env(ENV)
    observation, _ = env.reset(seed=7)
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
        actor = make_actor(rings, lanes)
        for _ in range(40):
            actor.step(always(1), 0)
        return rings.frames[0, :30].copy()

    # The first lane explores with the same numbers only if it explores not at all.
    one, four = frames(1), frames(4)
    assert one.shape == four.shape
    assert np.array_equal(one[0], four[0])


def test_batches_out_of_real_play_are_real_stacks() -> None:
    rings = Rings(2, 400, (84, 84))
    actor = make_actor(rings)
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
        stack=4,
        n_step=3,
        gamma=0.9,
        random=np.random.default_rng(0),
        device=torch.device("cpu"),
    )
    batch = replay.sample(64)
    known = {observation.tobytes() for lane in seen.values() for observation in lane}
    assert all(row.numpy().tobytes() in known for row in batch.observations)


def test_state_goes_on_alike() -> None:
    rings = Rings(2, 400, (84, 84))
    actor = make_actor(rings)
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
