"""Ways to the flag as demonstrations: on the real game, and the margin loss by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mario_ddqn.actions import action_names
from mario_ddqn.agent import DDQNAgent, margin_losses
from mario_ddqn.checkpoint import find_checkpoint
from mario_ddqn.config import (
    AgentConfig,
    Config,
    DemonstrationsConfig,
    EnvConfig,
    NetworkConfig,
    RewardTerms,
    StartStatesConfig,
)
from mario_ddqn.config_file import parse_config
from mario_ddqn.demonstrations import WithDemonstrations, find_demonstration, play_back
from mario_ddqn.frames import RamFrames
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.rings import FINAL, TERMINATED, Rings
from mario_ddqn.run import resume, start
from mario_ddqn.samplers import Sampler, UniformSampler, make_sampler

CPU = torch.device("cpu")
PATHS = json.loads((Path(__file__).parent / "data" / "paths.json").read_text())
CONFIG = Config(
    env=EnvConfig(
        stage="1-4", core="fceumm", actions="simple", reward=RewardTerms(flag=5, clip=None)
    ),
    agent=AgentConfig(network=NetworkConfig(width=0.125, hidden=16), n_step=3, bf16=False),
    demonstrations=DemonstrationsConfig(search_steps=600, share=0.25, margin=0.3),
    start_states=StartStatesConfig(cell_pixels=64),
)
ANY_CORE = dataclasses.replace(CONFIG, env=dataclasses.replace(CONFIG.env, core="auto"))
WAY = [action_names("simple").index(name) for name in PATHS["1-4"]["actions"]]


@pytest.fixture(scope="module")
def played() -> tuple[Rings, dict]:
    pytest.importorskip("stable_retro")
    return play_back(CONFIG, WAY)


def with_demonstrations(played: tuple[Rings, dict], *, priority: float = 0) -> WithDemonstrations:
    own = Rings(1, 200, (84, 84))
    own.begin(0, np.zeros((84, 84), np.uint8))
    for _ in range(60):
        own.add(0, 0, 0.0, np.zeros((84, 84), np.uint8), terminated=False, truncated=False)
    config = CONFIG.replay.__class__(priority=priority)
    way = played[0]
    return WithDemonstrations(
        memory_of(own, make_sampler(config, own, np.random.default_rng(0))),
        memory_of(way, UniformSampler(way, np.random.default_rng(0))),
        WAY,
        CONFIG.demonstrations,
        CPU,
    )


def memory_of(rings: Rings, sampler: Sampler) -> ReplayMemory:
    return ReplayMemory(
        rings,
        RamFrames(rings, CPU),
        stack=4,
        n_step=3,
        gamma=0.9,
        sampler=sampler,
        device=CPU,
    )


def test_the_way_ends_at_the_axe_and_start_states_lie_along_it(played: tuple) -> None:
    rings, states = played
    steps = len(WAY)
    assert rings.flags[0, steps - 1] & TERMINATED
    assert rings.flags[0, steps] & FINAL
    assert rings.actions[0, :steps].tolist() == WAY
    assert rings.rewards[0, steps - 1] > 4
    places = [cell[-1] for cell in states]
    assert places == sorted(places)
    assert len(places) > 30


def test_a_batch_has_its_share_of_the_way_with_margins(played: tuple) -> None:
    batch = with_demonstrations(played).sample(16)
    assert batch.margins.tolist() == pytest.approx([0.0] * 12 + [0.3] * 4)
    assert batch.observations[:12].max() == 0
    assert (batch.observations[12:].flatten(1).amax(1) > 0).all()
    assert batch.observations.shape == batch.next_observations.shape == (16, 4, 84, 84)


@pytest.mark.parametrize("priority", [0, 0.5])
def test_an_update_takes_such_a_batch(played: tuple, priority: float) -> None:
    memory = with_demonstrations(played, priority=priority)
    agent = DDQNAgent(CONFIG.agent, (4, 84, 84), 7, CPU)
    for _ in range(3):
        batch = memory.sample(16)
        memory.learned(batch, agent.update(batch).errors)


def test_state_goes_on_alike(played: tuple) -> None:
    memory, other = with_demonstrations(played), with_demonstrations(played)
    memory.sample(8)
    other.set_state(memory.get_state())
    assert other.get_state()["demonstration"]["path"] == WAY
    first, second = memory.sample(8), other.sample(8)
    assert torch.equal(first.observations, second.observations)
    assert torch.equal(first.actions, second.actions)


def test_margin_loss_by_hand() -> None:
    """max(Q + margin but for the action shown) - Q of the action shown; none without margin."""
    values = torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 1.0], [1.0, 2.0, 0.0]])
    losses = margin_losses(values, torch.tensor([0, 0, 0]), torch.tensor([0.5, 0.5, 0.0]))
    assert losses.tolist() == pytest.approx([2.5 - 1, 0, 0])


def test_a_search_that_finds_nothing_says_so_and_ends() -> None:
    lines: list[str] = []
    result = find_demonstration(ANY_CORE, lines.append, lambda: False)
    assert result.path == []
    assert 600 <= result.steps < 700
    assert "furthest" in lines[0]
    assert lines[-1] == "search   no way to the flag found; Mario learns without"


def test_a_search_stops_when_asked() -> None:
    assert find_demonstration(ANY_CORE, lambda _: None, lambda: True).steps == 0


@pytest.mark.slow
def test_a_run_searches_learns_with_the_way_and_remembers_it(tmp_path: Path) -> None:
    """1-4 is short: a way is found within a minute, its steps count, and a resume has it too."""
    pytest.importorskip("stable_retro")
    config = parse_config(
        """
env: {stage: 1-4, core: fceumm, actions: simple}
agent: {network: {width: 0.125, hidden: 16}, batch_size: 8}
demonstrations: {search_steps: 100000}
start_states: {share: 0.9}
replay: {maxlen: 4000, reserve_gb: 0}
train: {burn_in: 100, lanes: 2, actors: 0}
evaluation: {every_minutes: null}
log: {every_seconds: 1000, tensorboard: false}
""",
        "small.yaml",
    )
    questions = 0

    def stop() -> bool:
        # Some 10 of them by the search, the others turn by turn of the training.
        nonlocal questions
        questions += 1
        return questions > 300

    folder = tmp_path / "run"
    start(config, folder, stop)
    first = find_checkpoint(folder)[1]
    path = first["sampler"]["demonstration"]["path"]
    assert 100 < len(path) < 2000
    assert first["steps"] > 2000
    assert first["agent"]["updates"] > 50
    resume(folder, [f"train.steps={first['steps'] + 40}"], lambda: False)
    second = find_checkpoint(folder)[1]
    assert second["sampler"]["demonstration"]["path"] == path
    assert second["steps"] >= first["steps"] + 40
