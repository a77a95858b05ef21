"""Measures speed and memory against the emulator's and the network's limits, and against peers.

    pip install -e '.[bench]'
    python scripts/bench.py --json bench.json

All figures are ratios taken in one run on one machine; what is compared is
measured by turns where it is short, and in processes of its own where it is a
training. A whole run takes under 15 minutes and wants an idle machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn

from mario_ddqn.actions import action_names, button_byte
from mario_ddqn.agent import double_dqn_target, uses_bf16
from mario_ddqn.config import EnvConfig, ReplayConfig
from mario_ddqn.config_file import load_config
from mario_ddqn.cores import make_core
from mario_ddqn.cores.fceumm import _MASKS
from mario_ddqn.frames import RamFrames
from mario_ddqn.network import MarioNet
from mario_ddqn.plan import available_cores
from mario_ddqn.replay import Batch, ReplayMemory
from mario_ddqn.rings import FINAL, FIRST, Rings
from mario_ddqn.samplers import make_sampler
from mario_ddqn.sizing import transition_bytes
from mario_ddqn.wrappers import make_env

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")
_TUTORIAL_BYTES = 2 * 4 * 84 * 84 * 4  # two stacks of float32 a transition
_ROUNDS = 7
_LEARN_MEAN_X = 1500
_LEARN_STARTS = 20
_LEARN_CAP_SECONDS = 1800
_LEARN_EVERY_SECONDS = 20
# Figure -> (at least or at most, target, what it is).
TARGETS: dict[str, tuple[str, float, str]] = {
    "env_vs_emulator": (">=", 0.85, "one environment's steps/s against bare FCEUmm / 4"),
    "env_vs_seed": (">=", 4.5, "the same against gym-super-mario-bros, tutorial's wrappers"),
    "learner_vs_bare": (">=", 0.9, "updates/s in training against a bare torch loop"),
    "sampling_1m_vs_10k": ("<=", 1.2, "cost of a batch at 1,000,000 against 10,000"),
    "bytes_vs_tutorial": (">=", 31, "bytes a transition of the tutorial against ours"),
    "train_vs_sb3": (">=", 1.3, "training steps/s, update every 4, against stable-baselines3"),
    "train_vs_tutorial": (">=", 1.6, "the same against the tutorial's loop and stack"),
    "act_vs_sb3": (">=", 2, "training steps/s, update every 32, against stable-baselines3"),
    "act_vs_tutorial": (">=", 4.5, "the same against the tutorial's loop and stack"),
    "learn_vs_sb3": (">=", 3, "how many times sooner 20 greedy episodes reach x 1,500"),
    "memory_over_idle_gb": ("<=", 1.6, "peak GB over an idle torch a process, maxlen 100,000"),
}


def main() -> None:
    """Runs all measurements, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write ratios and raw figures")
    parser.add_argument("--seconds", type=float, default=40, help="of each training (default 40)")
    parser.add_argument(
        "--learn",
        action="store_true",
        help="measure only how fast 1-1 is learned, against stable-baselines3 (up to 4 hours)",
    )
    parser.add_argument(
        "--without-fresh-jumps",
        action="store_true",
        help="with --learn: both without env.fresh_jumps, where no constant policy gets far",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[1, 2, 3],
        metavar="SEED",
        help="with --learn: one training of each side a seed, up to 30 minutes (default 1 2 3)",
    )
    options = parser.parse_args()
    raw: dict[str, Any] = {}
    began = time.monotonic()
    if options.learn:
        changes = ["env.fresh_jumps=false"] if options.without_fresh_jumps else []
        ratios = learning(raw, changes, options.seeds)
        _finish(ratios, raw, options.json)
        return
    for measure in (environment, sampling, learner, trainings):
        print(f"[{time.monotonic() - began:4.0f} s] {measure.__name__}", file=sys.stderr)
        measure(raw, options.seconds)
    raw["bytes_a_transition"] = transition_bytes(84)
    ratios = {
        "env_vs_emulator": raw["env_vs_emulator"],
        "env_vs_seed": raw["env_steps_per_second"] / raw["tutorial_env_steps_per_second"],
        "learner_vs_bare": raw["learner_updates_per_second"] / raw["bare_updates_per_second"],
        "sampling_1m_vs_10k": raw["sampling_1m_vs_10k"],
        "bytes_vs_tutorial": _TUTORIAL_BYTES / raw["bytes_a_transition"],
        "train_vs_sb3": raw["train_every_4"] / raw["sb3_every_4"],
        "train_vs_tutorial": raw["train_every_4"] / raw["tutorial_every_4"],
        "act_vs_sb3": raw["train_every_32"] / raw["sb3_every_32"],
        "act_vs_tutorial": raw["train_every_32"] / raw["tutorial_every_32"],
        "memory_over_idle_gb": raw["memory_over_idle_gb"],
    }
    raw["bench_seconds"] = time.monotonic() - began
    _finish(ratios, raw, options.json)


def _finish(ratios: dict[str, float], raw: dict[str, Any], path: Path | None) -> None:
    _print_table(ratios)
    if path is not None:
        result = {"ratios": ratios, "raw": raw, "machine": machine()}
        path.write_text(json.dumps(result, indent=2) + "\n")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": available_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "core": make_core("auto").name,
    }


# -- the environment -----------------------------------------------------------


def environment(raw: dict[str, float], seconds: float) -> None:
    """One environment with its wrappers, bare emulator frames in between, by turns."""
    env = make_env(EnvConfig(stall_steps=150))
    env.reset(seed=0)
    random = np.random.default_rng(0)
    actions = random.integers(1, 5, 10_000)

    def steps(count: int) -> None:
        for number in range(count):
            _, _, terminated, truncated, _ = env.step(actions[number])
            if terminated or truncated:
                env.reset()

    core = env.unwrapped.core  # type: ignore[attr-defined]
    emulator = core._emulator
    masks = [_MASKS[button_byte(name)] for name in action_names("right_only")]

    def frames(count: int) -> None:
        for number in range(count // 4):
            emulator.set_button_mask(masks[actions[number]], 0)
            for _ in range(4):
                emulator.step()

    env_rates, bare_rates = [], []
    for _ in range(_ROUNDS):
        # The same buttons from the same place.
        start = core.save_state()
        env_rates.append(_rate(lambda: steps(400), 400))
        core.load_state(start)
        bare_rates.append(_rate(lambda: frames(1600), 1600))
        env.reset()
    raw["env_steps_per_second"] = statistics.median(env_rates)
    raw["emulator_frames_per_second"] = statistics.median(bare_rates)
    raw["env_vs_emulator"] = statistics.median(
        mine / (bare / 4) for mine, bare in zip(env_rates, bare_rates, strict=True)
    )
    env.close()
    raw["tutorial_env_steps_per_second"] = _peer("tutorial-env", seconds=seconds / 2)


def _rate(work: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


# -- sampling ------------------------------------------------------------------


def sampling(raw: dict[str, float], _: float) -> None:
    """Batches of 32 out of full memories of both sizes, uniform and by priority, by turns."""
    rings = {"10k": _full_rings(10_000), "1m": _full_rings(1_000_000)}
    memories = {
        f"{name}{suffix}": _memory(full, ReplayConfig(priority=priority))
        for name, full in rings.items()
        for suffix, priority in (("", 0.0), ("_by_priority", 0.5))
    }
    times: dict[str, list[float]] = {name: [] for name in memories}
    for _ in range(_ROUNDS):
        for name, replay in memories.items():
            began = time.perf_counter()
            for _ in range(100):
                batch = replay.sample(32)
                replay.learned(batch, np.ones(32, np.float32))
            times[name].append((time.perf_counter() - began) / 100)
    for name, seconds in times.items():
        raw[f"sample_ms_{name}"] = 1000 * statistics.median(seconds)
    raw["sampling_1m_vs_10k"] = raw["sample_ms_1m"] / raw["sample_ms_10k"]


def _full_rings(maxlen: int, lanes: int = 8) -> Rings:
    """With episodes of 200 steps."""
    rings = Rings(lanes, maxlen // lanes, (84, 84))
    # Every page written, so that it is really there.
    rings.frames[:] = 1
    rings.flags[:, ::201] = FIRST
    rings.flags[:, 200::201] = FINAL
    rings.heads[:] = rings.capacity - 20
    return rings


def _memory(rings: Rings, config: ReplayConfig) -> ReplayMemory:
    return ReplayMemory(
        rings,
        RamFrames(rings, CPU),
        stack=4,
        n_step=1,
        gamma=0.9,
        sampler=make_sampler(config, rings, np.random.default_rng(0)),
        device=CPU,
    )


# -- the learner ---------------------------------------------------------------


def learner(raw: dict[str, float], seconds: float) -> None:
    """A bare loop before and after a training whose actors are never waited for."""
    before = _bare_updates(seconds / 2)
    rows = _train(
        ["train.steps_per_update=1", "train.burn_in=1000", "train.lanes=8"], 1000, seconds
    )
    raw["learner_updates_per_second"] = _slope(rows, "updates")
    raw["bare_updates_per_second"] = (before + _bare_updates(seconds / 2)) / 2


def _bare_updates(seconds: float) -> float:
    """Network, precision, batch and loss of a training on one batch in memory, one thread."""
    torch.set_num_threads(max(1, available_cores() - 1))
    config = load_config(ROOT / "configs" / "tutorial.yaml").agent
    online, target = (MarioNet((4, 84, 84), 2, config.network) for _ in range(2))
    optimizer = torch.optim.Adam(online.parameters(), lr=config.learning_rate)
    frames = torch.randint(0, 256, (2, 32, 4, 84, 84), dtype=torch.uint8)
    batch = Batch(
        frames[0], torch.zeros(32, dtype=torch.int64), torch.ones(32), frames[1], torch.ones(32)
    )
    precision = torch.autocast("cpu", torch.bfloat16, enabled=uses_bf16(config.bf16, CPU))
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        with precision:
            with torch.no_grad():
                wanted = double_dqn_target(
                    batch.rewards,
                    batch.discounts,
                    online(batch.next_observations),
                    target(batch.next_observations),
                )
            taken = online(batch.observations).gather(1, batch.actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(taken, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
        count += 1
    return count / (time.perf_counter() - began)


# -- whole trainings -----------------------------------------------------------


def trainings(raw: dict[str, float], seconds: float) -> None:
    """Ours, stable-baselines3's and the tutorial's, an update every 4 and every 32 steps."""
    for every in (4, 32):
        settings = [f"train.steps_per_update={every}", "train.burn_in=1000", "train.lanes=16"]
        settings += ["exploration.exploration_rate=0.5", "exploration.exploration_rate_decay=1"]
        rows = _train(settings, 1000, seconds, raw if every == 32 else None)
        raw[f"train_every_{every}"] = _slope(rows, "step")
        rows = _train([*settings, "agent.bf16=false"], 1000, seconds)
        raw[f"train_every_{every}_float32"] = _slope(rows, "step")
        raw[f"sb3_every_{every}"] = _peer("sb3", every=every, seconds=seconds)
        raw[f"tutorial_every_{every}"] = _peer("tutorial", every=every, seconds=seconds)


def learning(raw: dict[str, Any], changes: list[str], seeds: list[int]) -> dict[str, float]:
    """Seconds of training until 20 greedy no-op starts of 1-1 reach a mean x of 1,500.

    configs/ddqn.yaml against stable-baselines3's DQN at its defaults on the same
    environment: both with each of `seeds`, evaluated every 20 seconds, for 30 minutes at
    most. Evaluations count in our seconds (an actor plays them), not in theirs.
    The ratio is that of the medians, a lower bound where theirs does not get there.
    `changes` are made to the environment of both.
    """
    raw["learn_seeds"] = seeds
    for key, learn in (("learn", _learn_ours), ("sb3_learn", _learn_theirs)):
        raw[f"{key}_evaluations"], raw[f"{key}_seconds"] = [], []
        for seed in seeds:
            evaluations = learn(seed, changes)
            raw[f"{key}_evaluations"].append(evaluations)
            raw[f"{key}_seconds"].append(_first_reached(evaluations))
            # It may take hours: what is known so far outlives an interruption.
            print(f"{key} of seed {seed}: {raw[f'{key}_seconds'][-1]} s", file=sys.stderr)
    ours, theirs = (
        statistics.median(seconds or _LEARN_CAP_SECONDS for seconds in raw[key])
        for key in ("learn_seconds", "sb3_learn_seconds")
    )
    return {"learn_vs_sb3": theirs / ours}


def _learn_ours(seed: int, changes: list[str]) -> list[dict[str, Any]]:
    settings = [f"evaluation.every_minutes={_LEARN_EVERY_SECONDS / 60}", f"seed={seed}"]
    settings += [f"train.minutes={_LEARN_CAP_SECONDS / 60}", f"evaluation.episodes={_LEARN_STARTS}"]
    with tempfile.TemporaryDirectory() as folder:
        process = _start("ddqn.yaml", folder, [*settings, *changes])
        file = Path(folder) / "bench" / "evaluations.jsonl"
        evaluations: list[dict[str, Any]] = []
        while _first_reached(evaluations) is None and process.poll() is None:
            time.sleep(1)
            if file.exists():
                evaluations = [json.loads(line) for line in file.read_text().splitlines()]
        process.terminate()
        process.wait()
    return evaluations


def _learn_theirs(seed: int, changes: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, str(ROOT / "scripts" / "peer_learning.py"), "--seed", str(seed)]
    command += ["--every-minutes", str(_LEARN_EVERY_SECONDS / 60)]
    command += ["--starts", str(_LEARN_STARTS)]
    command += ["--seconds", str(_LEARN_CAP_SECONDS), "--until-mean-x", str(_LEARN_MEAN_X)]
    for change in changes:
        command += ["--set", change]
    output = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
    evaluations: list[dict[str, Any]] = json.loads(output.splitlines()[-1])["evaluations"]
    return evaluations


def _first_reached(evaluations: list[dict[str, Any]]) -> float | None:
    return next((line["seconds"] for line in evaluations if line["mean_x"] >= _LEARN_MEAN_X), None)


def _train(
    settings: list[str], after: int, seconds: float, raw: dict[str, float] | None = None
) -> list[dict[str, str]]:
    """mario-train with configs/tutorial.yaml; rows of metrics.csv from step `after` on."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = ["log.every_seconds=1", "log.tensorboard=false", "checkpoint.every_minutes=60"]
        fixed += ["checkpoint.every_steps=100000000", "replay.save=false"]
        process = _start("tutorial.yaml", folder, [*settings, *fixed])
        metrics = Path(folder) / "bench" / "metrics.csv"
        peak = _watch(process, metrics, after, seconds)
        process.terminate()
        process.wait()
        if raw is not None:
            idle = _idle_memory()
            raw["memory_peak_gb"] = peak["bytes"] / 1e9
            raw["memory_processes"] = peak["processes"]
            # The replay of 100,000 is committed from the start, full or not.
            raw["memory_over_idle_gb"] = (peak["bytes"] - peak["processes"] * idle) / 1e9
        return [row for row in _rows(metrics) if int(row["step"]) > after]


def _start(config: str, folder: str, settings: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--runs", folder, "--name", "bench"]
    command += ["--config", str(ROOT / "configs" / config)]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _watch(
    process: subprocess.Popen, metrics: Path, after: int, seconds: float
) -> dict[str, float]:
    """Waits until the training has run for so long after so many steps; peak memory of all."""
    peak = {"bytes": 0.0, "processes": 0.0}
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"mario-train ended with exit code {process.returncode}")
        rows = _rows(metrics)
        if deadline is None and rows and int(rows[-1]["step"]) > after:
            deadline = time.monotonic() + seconds
        parent = psutil.Process(process.pid)
        family = [parent, *parent.children(recursive=True)]
        # Shared pages are counted once: proportional set sizes.
        sizes = [_pss(member) for member in family]
        if sum(sizes) > peak["bytes"]:
            # Those with torch, not the small one that spawns them.
            large = sum(size > 5e7 for size in sizes)
            peak = {"bytes": float(sum(sizes)), "processes": float(large)}
        time.sleep(0.5)
    return peak


def _pss(process: psutil.Process) -> int:
    try:
        info = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(info, "pss", info.rss))


def _idle_memory() -> int:
    """Bytes of a process that has only imported torch."""
    code = "import torch, psutil; print(psutil.Process().memory_full_info().pss)"
    return int(subprocess.check_output([sys.executable, "-c", code]))


def _rows(metrics: Path) -> list[dict[str, str]]:
    if not metrics.exists():
        return []
    rows = list(csv.DictReader(metrics.read_text().splitlines()))
    return [row for row in rows if row.get("replay")]


def _slope(rows: list[dict[str, str]], column: str) -> float:
    """Growth a second between the first and the last row."""
    seconds = float(rows[-1]["seconds"]) - float(rows[0]["seconds"])
    return (float(rows[-1][column]) - float(rows[0][column])) / seconds


def _peer(name: str, *, seconds: float, every: int = 4) -> float:
    command = [sys.executable, str(ROOT / "scripts" / "peers.py"), name]
    command += ["--every", str(every), "--seconds", str(seconds)]
    environment_of_peer = {**os.environ, "PYTHONWARNINGS": "ignore"}
    output = subprocess.check_output(
        command, stderr=subprocess.DEVNULL, env=environment_of_peer, text=True
    )
    return float(json.loads(output.splitlines()[-1])["steps_per_second"])


def _print_table(ratios: dict[str, float]) -> None:
    print("| figure | measured | target | |")
    print("|---|---|---|---|")
    for name, value in ratios.items():
        sign, target, text = TARGETS[name]
        reached = value >= target if sign == ">=" else value <= target
        print(f"| {text} | {value:.2f} | {sign} {target:g} | {'yes' if reached else 'short'} |")


if __name__ == "__main__":
    main()
