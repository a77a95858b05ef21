"""Actor processes: real ones, killed, orphaned and paced."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil
import pytest
import torch

from mario_ddqn.checkpoint import detached
from mario_ddqn.config import (
    Config,
    EnvConfig,
    EvaluationConfig,
    NetworkConfig,
    StartStatesConfig,
    TrainConfig,
)
from mario_ddqn.network import MarioNet
from mario_ddqn.rings import FIRST, Rings
from mario_ddqn.shared import SharedArrays
from mario_ddqn.weights import WeightsBoard
from mario_ddqn.workers import ActorError, WorkerCollector

pytestmark = pytest.mark.slow
CONFIG = Config(
    env=EnvConfig(actions=["right+B", "right+A+B"], stall_steps=40),
    evaluation=EvaluationConfig(episodes=2),
    train=TrainConfig(lanes=2),
)
CONFIG = dataclasses.replace(
    CONFIG,
    agent=dataclasses.replace(CONFIG.agent, network=NetworkConfig(width=0.125, hidden=16)),
)
FOREVER = float("inf")


class Collecting:
    """A collector with two lanes each for its actors, and what came of it."""

    def __init__(self, actors: int = 1, config: Config = CONFIG) -> None:
        context = multiprocessing.get_context("spawn")
        self.shared = SharedArrays(context)
        self.rings = Rings(2 * actors, 3000, (84, 84), self.shared.allocate)
        self.network = MarioNet((4, 84, 84), 2, config.agent.network)
        self.messages: list[str] = []
        self.collector = WorkerCollector(
            config,
            actors=actors,
            context=context,
            shared=self.shared,
            rings=self.rings,
            network=self.network,
            known_starts={},
            report=self.messages.append,
        )
        self.steps = 0
        self.episodes: list = []
        self.evaluations: list = []

    def __enter__(self) -> Collecting:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.collector.close()

    def until(self, done: Callable[[], bool], limit: float = FOREVER, seconds: float = 60) -> None:
        """Collects until `done`, at most so long."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, self.messages
            collected = self.collector.collect(self.steps, limit)
            self.steps += collected.steps
            self.episodes += collected.episodes
            if collected.evaluation is not None:
                self.evaluations.append(collected.evaluation)
            time.sleep(0.001)

    def processes(self) -> list[psutil.Process]:
        actors = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    actors.append(child)
        return actors


def test_actors_fill_the_rings_and_tell_of_their_episodes() -> None:
    with Collecting(actors=2) as run:
        # On a busy machine one of them may start long after the other.
        run.until(lambda: bool((run.rings.heads > 50).all()) and len(run.episodes) >= 4)
        assert run.steps >= 200
        assert len(run.processes()) == 2
        assert run.rings.flags[0, 0] & FIRST
        assert run.rings.frames[3, 40].any()
        assert {episode.lane for episode in run.episodes} <= {0, 1, 2, 3}
        assert all(200 < episode.x < 1500 for episode in run.episodes if episode.death)
        processes = run.processes()
    assert all(not process.is_running() for process in processes)


def test_start_states_survive_a_resume() -> None:
    """What the actors have reached is in the state, and new actors start there at once."""
    config = dataclasses.replace(
        CONFIG, start_states=StartStatesConfig(share=0.95, cell_pixels=32, alive_steps=5)
    )
    with Collecting(config=config) as run:
        run.until(lambda: len(run.collector.get_state()["start_states"]["cells"]) >= 5)
        state = run.collector.get_state()
    saved = detached(state)
    with Collecting(config=config) as run:
        run.collector.set_state(saved)
        run.until(lambda: len(run.episodes) >= 2)
        assert not all(episode.from_start for episode in run.episodes[:2])
        cells = run.collector.get_state()["start_states"]["cells"]
    assert cells[: len(state["start_states"]["cells"])] == state["start_states"]["cells"]


def test_actors_stop_at_the_limit_and_go_on() -> None:
    with Collecting() as run:
        run.until(lambda: run.steps >= 100, limit=100)
        # A batch of the two lanes at most.
        for _ in range(20):
            run.until(lambda: True, limit=100)
        assert 100 <= run.steps <= 102
        run.until(lambda: run.steps >= 200, limit=200)
        assert 200 <= run.steps <= 202


def test_new_weights_reach_the_actors() -> None:
    with Collecting() as run:
        with torch.no_grad():
            run.network.advantage[-1].bias.copy_(torch.tensor([1000.0, 0.0]))
        run.until(lambda: run.steps >= 200, limit=200)
        with torch.no_grad():
            run.network.advantage[-1].bias.copy_(torch.tensor([0.0, 1000.0]))
        run.collector.publish()
        run.until(lambda: run.steps >= 400, limit=400)
        # Of the second half nearly all, but for what is explored, is the second action.
        heads = run.rings.heads.min()
        actions = run.rings.actions[:, :heads]
        assert actions[:, : heads // 3].mean() < 0.7
        assert actions.shape[1] > 150


def test_evaluation_is_of_the_weights_at_the_time_it_was_asked_for() -> None:
    with Collecting() as run:
        with torch.no_grad():
            run.network.advantage[-1].bias.copy_(torch.tensor([1000.0, 0.0]))
        run.until(lambda: run.steps >= 50)
        run.collector.evaluate()
        with torch.no_grad():
            run.network.advantage[-1].bias.copy_(torch.tensor([0.0, 1000.0]))
        run.until(lambda: bool(run.evaluations))
        # Running without a jump ends at the first Goomba.
        assert run.evaluations[0].episodes == 2
        assert run.evaluations[0].mean_x < 450


def test_an_evaluation_is_played_even_if_the_actor_dies_over_it() -> None:
    with Collecting() as run:
        run.until(lambda: run.steps >= 50)
        (victim,) = run.processes()
        victim.suspend()
        run.collector.evaluate()
        victim.kill()
        run.until(lambda: bool(run.evaluations))
        assert len(run.messages) == 1
        # Played once, and not again.
        steps = run.steps
        run.until(lambda: run.steps >= steps + 200)
        assert len(run.evaluations) == 1


def test_an_evaluation_that_was_asked_for_before_the_actors_run_is_played() -> None:
    with Collecting() as run:
        run.collector.evaluate()
        run.until(lambda: bool(run.evaluations))


def test_a_killed_actor_is_started_again() -> None:
    with Collecting() as run:
        run.until(lambda: run.steps >= 100)
        (victim,) = run.processes()
        victim.kill()
        run.until(lambda: bool(run.messages))
        assert "actor 0 died (exit code -9) and is started again" in run.messages[0]
        before = run.steps
        run.until(lambda: run.steps >= before + 100)
        (new,) = run.processes()
        assert new.pid != victim.pid


def test_actors_that_keep_dying_end_the_run() -> None:
    with Collecting() as run:

        def kill_and_go_on() -> bool:
            for process in run.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            return False

        with pytest.raises(ActorError, match="actor 0 died again"):
            run.until(kill_and_go_on)
        assert len(run.messages) == 3


def test_an_actor_that_can_not_start_says_why() -> None:
    broken = dataclasses.replace(CONFIG, env=dataclasses.replace(CONFIG.env, actions=["fly"] * 2))
    with Collecting() as run:
        run.collector._config = broken
        with pytest.raises(ActorError, match="unknown button 'fly'"):
            run.until(lambda: False)


ORPHANS = """
import sys, time
sys.path.insert(0, {tests!r})
from test_workers import Collecting

if __name__ == "__main__":
    run = Collecting(actors=2)
    run.until(lambda: run.steps >= 50)
    print(*(process.pid for process in run.processes()), flush=True)
    time.sleep(1000)
"""


def test_no_actor_outlives_its_learner(tmp_path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS.format(tests=os.path.dirname(__file__)))
    learner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert learner.stdout is not None
    actors = [psutil.Process(int(pid)) for pid in learner.stdout.readline().split()]
    assert len(actors) == 2
    learner.send_signal(signal.SIGKILL)
    learner.wait()
    learner.stdout.close()
    _gone, alive = psutil.wait_procs(actors, timeout=5)
    assert alive == []


def test_a_childs_arrays_are_its_parents() -> None:
    shared = SharedArrays(multiprocessing.get_context("spawn"))
    first = shared.allocate((2, 3), np.float32)
    second = shared.allocate((5,), np.int64)
    assert (first == 0).all()
    first[1, 2], second[4] = 7.5, -1
    child = object.__new__(SharedArrays)
    child.__dict__.update(shared.__getstate__())
    assert child.allocate((2, 3), np.float32)[1, 2] == 7.5
    with pytest.raises(RuntimeError, match="shared array 1"):
        child.allocate((6,), np.int64)


def test_board_hands_the_newest_weights_on() -> None:
    def net(seed: int) -> MarioNet:
        torch.manual_seed(seed)
        return MarioNet((4, 84, 84), 3, NetworkConfig(width=0.25, hidden=8, dueling=True))

    board = WeightsBoard(net(0), np.zeros)
    assert board.version == 0
    copy = net(9)
    for seed in (1, 2, 3):
        board.publish(net(seed))
        assert board.fetch(copy) == seed
        for mine, theirs in zip(copy.parameters(), net(seed).parameters(), strict=True):
            assert torch.equal(mine, theirs)
