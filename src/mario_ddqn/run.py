"""Puts a run together out of its parts, new or from a checkpoint, and trains it."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mario_ddqn import __version__
from mario_ddqn.actions import action_names
from mario_ddqn.actor import make_actor
from mario_ddqn.agent import DDQNAgent, NotFiniteError
from mario_ddqn.banner import banner
from mario_ddqn.checkpoint import Checkpointer, find_checkpoint
from mario_ddqn.collect import Collector
from mario_ddqn.config import Config
from mario_ddqn.config_file import dump_config, parse_config
from mario_ddqn.demonstrations import (
    Demonstration,
    WithDemonstrations,
    find_demonstration,
    play_back,
)
from mario_ddqn.display import Display
from mario_ddqn.errors import UserError
from mario_ddqn.files import write_atomically
from mario_ddqn.frames import GPU_WINDOW, Frames, GpuFrames, RamFrames
from mario_ddqn.inline import InlineCollector
from mario_ddqn.lock import RunLock
from mario_ddqn.metrics import Metrics
from mario_ddqn.plan import Plan, make_plan
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.replay_store import ReplayStore
from mario_ddqn.rings import Rings
from mario_ddqn.samplers import Sampler, UniformSampler, make_sampler
from mario_ddqn.shared import SharedArrays
from mario_ddqn.start_states import Cell
from mario_ddqn.threads import LearnerThreads
from mario_ddqn.trainer import Trainer
from mario_ddqn.workers import ActorError, WorkerCollector

CONFIG_FILE = "config.yaml"


def run_folder(parent: Path, config: Config, stem: str) -> Path:
    """A folder for a new run: never one that is there already.

    Raises:
        UserError: `config.name` is given and taken.
    """
    if config.name is not None:
        folder = parent / config.name
        if folder.exists():
            raise UserError(
                f"{folder}: exists; go on with --resume {folder}, or choose another --name"
            )
        return folder
    base = f"{stem}-{config.env.stage}"
    number = 1
    while True:
        folder = parent / (base if number == 1 else f"{base}-{number}")
        if not folder.exists():
            return folder
        number += 1


def start(config: Config, folder: Path, stop_requested: Callable[[], bool]) -> None:
    """Trains a new run in `folder`, which must not exist."""
    plan = make_plan(config)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{folder}: this folder can't be made ({error.strerror}); give another with --runs"
        ) from error
    with RunLock(folder):
        _train(config, plan, folder, None, stop_requested)


def resume(path: Path, overrides: Sequence[str], stop_requested: Callable[[], bool]) -> Path:
    """Goes on with the run that a checkpoint or run folder holds; returns the folder."""
    with RunLock(path if path.is_dir() else path.parent):
        return _resume(path, overrides, stop_requested)


def _resume(path: Path, overrides: Sequence[str], stop_requested: Callable[[], bool]) -> Path:
    checkpoint, payload, passed_over = find_checkpoint(path)
    for problem in passed_over:
        print(f"passed over: {problem}", file=sys.stderr)
    if "collector" not in payload:
        raise UserError(
            f"{checkpoint}: has only the weights to play with (scripts/export.py); a training goes "
            "on from a checkpoint of its own"
        )
    config = parse_config(payload["config"], f"{checkpoint} (its configuration)", overrides)
    print(f"resuming {checkpoint} at step {payload['steps']:,}", file=sys.stderr)
    folder = checkpoint.parent
    _train(config, make_plan(config), folder, payload, stop_requested)
    return folder


def _train(
    config: Config,
    plan: Plan,
    folder: Path,
    payload: dict[str, Any] | None,
    stop_requested: Callable[[], bool],
) -> None:
    torch.manual_seed(config.seed)
    # A third of Adam's moments, those of silent filters, decay to denormal numbers, with
    # which an update takes half as long again. Threads inherit it, so it comes before them.
    torch.set_flush_denormal(True)
    agent = DDQNAgent(
        config.agent,
        (config.env.stack, config.env.size, config.env.size),
        len(action_names(config.env.actions)),
        plan.device,
    )
    context = multiprocessing.get_context("spawn")
    shared = SharedArrays(context)
    rings = Rings(
        plan.lanes,
        plan.replay.maxlen // plan.lanes,
        (config.env.size, config.env.size),
        shared.allocate if plan.actors else np.zeros,
        window=GPU_WINDOW if plan.replay.device == "cuda" else None,
    )
    frames: Frames = (GpuFrames if plan.replay.device == "cuda" else RamFrames)(rings, plan.device)
    write_atomically(folder / CONFIG_FILE, dump_config(config).encode())
    start_step = 0 if payload is None else payload["steps"]
    display = Display(total=config.train.steps, start=start_step)
    # Closed in the reverse order, whatever goes wrong from here on.
    with ExitStack() as ending:
        ending.callback(display.close)
        threads = LearnerThreads(plan.cores, plan.actors) if plan.actors else None
        for line in banner(config, folder, agent, plan):
            display.line(line)
        demonstration = _demonstration(config, payload, display.line, stop_requested)
        replay, known_starts = _replay(config, plan, rings, frames, demonstration)
        collector: Collector
        if plan.actors:
            collector = WorkerCollector(
                config,
                actors=plan.actors,
                context=context,
                shared=shared,
                rings=rings,
                network=agent.policy,
                known_starts=known_starts,
                report=display.line,
            )
        else:
            actor = make_actor(config, rings, range(plan.lanes), known_starts)
            collector = InlineCollector(actor, agent.greedy_actions)
        ending.callback(collector.close)
        checkpointer = Checkpointer(
            folder,
            keep=config.checkpoint.keep,
            rings=rings,
            frames=frames,
            save_replay=config.replay.save,
            report=display.line,
        )
        metrics = Metrics(
            folder, start_step=start_step, tensorboard=config.log.tensorboard, report=display.line
        )
        ending.callback(metrics.close)
        trainer = Trainer(
            config,
            version=__version__,
            agent=agent,
            collector=collector,
            replay=replay,
            checkpointer=checkpointer,
            metrics=metrics,
            display=display,
            threads=threads,
            stop_requested=stop_requested,
        )
        if payload is None:
            trainer.count_in(demonstration.steps, demonstration.seconds)
        else:
            _restore(trainer, checkpointer, rings, frames, payload, folder, display)
        with _told_to_the_user(trainer, folder):
            trainer.run()
    display.line(
        f"step {trainer.steps:,} saved; go on: mario-train --resume {folder}   "
        f"watch: mario-play --checkpoint {folder}"
    )


@contextmanager
def _told_to_the_user(trainer: Trainer, folder: Path) -> Iterator[None]:
    """What can end a training before its time: saved if it can be, and told in one line."""
    try:
        yield
    except ActorError as error:
        trainer.save(wait=True)
        raise UserError(
            f"{error}; step {trainer.steps:,} is saved: mend it, then --resume {folder}"
        ) from error
    except NotFiniteError as error:
        raise UserError(
            f"{error}; stopped before it could spoil a checkpoint: lower agent.learning_rate or "
            f"the rewards, then --resume {folder}"
        ) from error
    except torch.cuda.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        trainer.save(wait=True)
        raise UserError(
            f"CUDA out of memory; step {trainer.steps:,} is saved: lower agent.batch_size or "
            f"replay.maxlen, or set replay.device=cpu, then --resume {folder}"
        ) from error


def _replay(
    config: Config, plan: Plan, rings: Rings, frames: Frames, demonstration: Demonstration
) -> tuple[ReplayMemory | WithDemonstrations, dict[Cell, dict[str, Any]]]:
    """The replay memory, and the start states that the demonstration gives."""

    def memory_of(rings: Rings, frames: Frames, sampler: Sampler) -> ReplayMemory:
        return ReplayMemory(
            rings,
            frames,
            stack=config.env.stack,
            n_step=config.agent.n_step,
            gamma=config.agent.gamma,
            sampler=sampler,
            device=plan.device,
        )

    random = np.random.default_rng([config.seed, 1])
    memory = memory_of(rings, frames, make_sampler(config.replay, rings, random))
    if not demonstration.path:
        return memory, {}
    way, known_starts = play_back(config, demonstration.path)
    sampler = UniformSampler(way, np.random.default_rng([config.seed, 7]))
    shown = memory_of(way, RamFrames(way, plan.device), sampler)
    both = WithDemonstrations(memory, shown, demonstration.path, config.demonstrations, plan.device)
    return both, known_starts


def _demonstration(
    config: Config,
    payload: dict[str, Any] | None,
    report: Callable[[str], None],
    stop_requested: Callable[[], bool],
) -> Demonstration:
    """Searched for by a new run, kept in the checkpoint of a resumed one."""
    if payload is not None:
        kept = payload["sampler"].get("demonstration")
        return Demonstration(kept["path"] if kept else [])
    if config.demonstrations.search_steps == 0:
        return Demonstration([])
    demonstration = find_demonstration(config, report, stop_requested)
    if stop_requested():
        raise UserError("stopped while it searched for a way; nothing is saved yet, start it again")
    return demonstration


def _restore(
    trainer: Trainer,
    checkpointer: Checkpointer,
    rings: Rings,
    frames: Frames,
    payload: dict[str, Any],
    folder: Path,
    display: Display,
) -> None:
    if payload.get("replay"):
        restored = ReplayStore(folder / "replay").load(rings, frames, payload["replay"])
        checkpointer.resumed_from(payload)
        if restored.problem is not None:
            display.line(
                f"replay memory: {restored.slots:,} slots came back, the rest is lost: "
                f"{restored.problem}"
            )
    else:
        display.line("replay memory: not saved with this checkpoint; Mario starts without memories")
    try:
        trainer.set_state(payload)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{folder}: the checkpoint does not fit this configuration ({reason}); "
            "resume without changing the network, the actions, the stage or the lanes"
        ) from error
