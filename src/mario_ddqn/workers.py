"""Collecting in actor processes beside the learner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import numpy as np
import torch

from mario_ddqn.actions import action_names
from mario_ddqn.actor import Actor, Episode, make_actor
from mario_ddqn.collect import Collected
from mario_ddqn.config import Config
from mario_ddqn.evaluate import Evaluation
from mario_ddqn.network import MarioNet
from mario_ddqn.profile import ACTOR_PARTS, Profile
from mario_ddqn.rings import Rings
from mario_ddqn.shared import SharedArrays
from mario_ddqn.start_states import Cell
from mario_ddqn.weights import WeightsBoard

# An actor with nothing to do looks again after so long; a step takes 1.5 ms.
_PAUSE_SECONDS = 0.0005
_CHECK_SECONDS = 0.5
_END_SECONDS = 5.0
# More restarts than that within the time, and something is wrong for good.
_MAX_RESTARTS = 3
_RESTART_WINDOW_SECONDS = 60.0


class ActorError(Exception):
    """Actors keep dying; the message says why the last one did."""


class Control:
    """A few numbers in shared memory, each with one writer.

    `limit`: the run's step that actors may not pass (learner); `stop`: 1 ends
    them (learner); `steps`: agent steps each has done since the start (actor);
    `seconds`: where each one's time went, by ACTOR_PARTS (actor); `evaluated`: the
    evaluation that was played last (first actor), by its version on the board.
    """

    def __init__(self, actors: int, allocate: Callable[..., np.ndarray]) -> None:
        self.limit = allocate((1,), np.int64)
        self.stop = allocate((1,), np.int64)
        self.steps = allocate((actors,), np.int64)
        self.seconds = allocate((actors, len(ACTOR_PARTS)), np.float64)
        self.evaluated = allocate((1,), np.int64)


@dataclass(frozen=True)
class _Job:
    """What an actor process is told at its start."""

    index: int
    config: Config
    lanes: range
    lane_count: int
    actors: int
    capacity: int
    window: int
    start_step: int
    generation: int
    known_starts: dict[Cell, dict[str, Any]]
    shared: SharedArrays


class WorkerCollector:
    """Actors in processes of their own, each with its emulator and its lanes.

    They write into the rings, which lie in shared memory, and send only the
    summaries of ended episodes and new start states through a pipe. Neither side
    waits for the other beyond the limit that `collect` is given. An actor that
    dies is started anew.
    """

    def __init__(
        self,
        config: Config,
        *,
        actors: int,
        context: SpawnContext,
        shared: SharedArrays,
        rings: Rings,
        network: MarioNet,
        known_starts: dict[Cell, dict[str, Any]],
        report: Callable[[str], None],
    ) -> None:
        """`shared` is what `rings` were allocated from, and nothing before them.

        `known_starts` are start states to begin with (start_states.py).
        """
        self._config = config
        self._context = context
        self._shared = shared
        self._rings = rings
        self._network = network
        self._known_starts = dict(known_starts)
        self._report = report
        self._actors = actors
        self._lanes_each = rings.lanes // actors
        self._board = WeightsBoard(network, shared.allocate)
        self._evaluation_board = WeightsBoard(network, shared.allocate)
        self._control = Control(actors, shared.allocate)
        self._processes: list[SpawnProcess | None] = [None] * actors
        self._pipes: list[Connection | None] = [None] * actors
        self._generations = [0] * actors
        # By actor: why it ended, in its own words.
        self._failures: dict[int, str] = {}
        self._restarts: deque[float] = deque(maxlen=_MAX_RESTARTS)
        self._start_step = 0
        self._collected = 0
        self._checked_at = 0.0
        self._started = False

    def collect(self, step: int, limit: float) -> Collected:
        """What the actors have done since the last call; they go on to the step `limit`.

        Raises:
            ActorError: actors keep dying.
        """
        if not self._started:
            self._start(step)
        self._control.limit[0] = int(min(limit, np.iinfo(np.int64).max))
        if time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._check()
        total = int(self._control.steps.sum())
        new, self._collected = total - self._collected, total
        collected = Collected(new)
        self._receive(collected)
        return collected

    def publish(self) -> None:
        """The network's weights have changed: the actors shall use the new ones."""
        self._board.publish(self._network)

    def evaluate(self) -> None:
        """The first actor plays the evaluation between two of its steps.

        If it is not running or dies over it, the one that takes its place does.
        """
        self._evaluation_board.publish(self._network)

    def actor_seconds(self) -> list[np.ndarray]:
        """As the actors book it."""
        return list(self._control.seconds)

    def get_state(self) -> dict[str, Any]:
        """The start states; the episodes in flight are what a resumed run begins anew."""
        starts = self._known_starts
        return {
            "start_states": {
                "cells": [list(cell) for cell in starts],
                "states": list(starts.values()),
            }
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`, of an InlineCollector too."""
        starts = state.get("start_states", {"cells": [], "states": []})
        cells = [tuple(cell) for cell in starts["cells"]]
        self._known_starts.update(zip(cells, starts["states"], strict=True))

    def close(self) -> None:
        """Ends the actors, within a few seconds."""
        self._control.stop[0] = 1
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            if process is None:
                continue
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        for pipe in self._pipes:
            if pipe is not None:
                pipe.close()
        self._processes = [None] * self._actors
        self._pipes = [None] * self._actors

    def _start(self, step: int) -> None:
        self._started = True
        self._start_step = step
        self.publish()
        for index in range(self._actors):
            self._spawn(index)

    def _spawn(self, index: int) -> None:
        first = index * self._lanes_each
        job = _Job(
            index=index,
            config=self._config,
            lanes=range(first, first + self._lanes_each),
            lane_count=self._rings.lanes,
            actors=self._actors,
            capacity=self._rings.capacity,
            window=self._rings.window,
            start_step=self._start_step,
            generation=self._generations[index],
            known_starts=self._known_starts,
            shared=self._shared,
        )
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_run_actor, args=(job, sender), name=f"actor-{index}", daemon=True
        )
        with _signals_ignored():
            process.start()
        sender.close()
        self._processes[index], self._pipes[index] = process, receiver

    def _check(self) -> None:
        for index, process in enumerate(self._processes):
            if process is None or process.is_alive():
                continue
            self._receive(Collected())
            reason = self._failures.pop(index, f"exit code {process.exitcode}")
            process.close()
            pipe = self._pipes[index]
            if pipe is not None:
                pipe.close()
            now = time.monotonic()
            full = len(self._restarts) == _MAX_RESTARTS
            if full and now - self._restarts[0] < _RESTART_WINDOW_SECONDS:
                self._processes[index] = None
                raise ActorError(f"actor {index} died again ({reason})")
            self._restarts.append(now)
            self._report(f"actor {index} died ({reason}) and is started again")
            self._generations[index] += 1
            self._spawn(index)

    def _receive(self, collected: Collected) -> None:
        for index, pipe in enumerate(self._pipes):
            with suppress(EOFError, OSError):
                while pipe is not None and pipe.poll():
                    message = pipe.recv()
                    if isinstance(message, Episode):
                        collected.episodes.append(message)
                    elif isinstance(message, Evaluation):
                        collected.evaluation = message
                    elif isinstance(message, dict):
                        self._known_starts.update(message)
                    else:
                        self._failures[index] = message


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Children inherit it: Ctrl-C reaches them too, and is the learner's to answer."""
    old = {number: signal.signal(number, signal.SIG_IGN) for number in _asking_signals()}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _asking_signals() -> list[int]:
    return [getattr(signal, n) for n in ("SIGINT", "SIGHUP", "SIGTERM") if hasattr(signal, n)]


def _run_actor(job: _Job, pipe: Connection) -> None:
    """The body of an actor process."""
    torch.set_num_threads(1)
    try:
        _act(job, pipe)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        with suppress(OSError):
            pipe.send(
                f"{type(error).__name__}: {error} ({os.path.basename(at.filename)}:{at.lineno})"
            )
        raise SystemExit(1) from None


def _act(job: _Job, pipe: Connection) -> None:
    config, allocate = job.config, job.shared.allocate
    side = config.env.size
    rings = Rings(job.lane_count, job.capacity, (side, side), allocate, window=job.window)
    network, evaluated = (
        MarioNet(
            (config.env.stack, side, side),
            len(action_names(config.env.actions)),
            config.agent.network,
        )
        for _ in range(2)
    )
    board = WeightsBoard(network, allocate)
    evaluation_board = WeightsBoard(evaluated, allocate)
    control = Control(job.actors, allocate)
    actor: Actor = make_actor(
        config, rings, job.lanes, job.known_starts, job.start_step, job.generation
    )
    actor.profile = Profile(ACTOR_PARTS, control.seconds[job.index])
    parent = multiprocessing.parent_process()
    assert parent is not None

    version = 0
    looked_at = time.monotonic()
    while not control.stop[0]:
        if time.monotonic() - looked_at > _CHECK_SECONDS:
            looked_at = time.monotonic()
            if not parent.is_alive():
                return
        if board.version != version:
            version = board.fetch(network)
        # Noted only when it is done: who dies over it leaves it to the next.
        if job.index == 0 and evaluation_board.version != control.evaluated[0]:
            evaluation = evaluation_board.fetch(evaluated)
            pipe.send(actor.evaluate(evaluated.greedy_actions))
            control.evaluated[0] = evaluation
        run_step = job.start_step + int(control.steps.sum())
        if run_step >= control.limit[0]:
            time.sleep(_PAUSE_SECONDS)
            actor.profile.book("wait")
            continue
        actor.profile.book("rest")
        for episode in actor.step(network.greedy_actions, run_step):
            pipe.send(episode)
        control.steps[job.index] += actor.lanes
        new_starts = actor.take_new_starts()
        if new_starts:
            pipe.send(new_starts)
    actor.close()
