"""Kills a real training again and again, and proves that nothing is lost.

    python scripts/kill_test.py --kills 100

A small network is trained on the real game, with a checkpoint every second or
so. At a random moment, while a checkpoint is written as likely as not, the
learner is killed with SIGKILL; then `--resume` goes on. Each time it is checked
that the newest checkpoint is readable and not older than an interval (and the
time a save takes), that the memory beside it comes back whole, that no temporary
file and no actor is left, and that the run goes on from there.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from mario_ddqn.checkpoint import find_checkpoint
from mario_ddqn.files import TEMPORARY_SUFFIX

ROOT = Path(__file__).parent.parent
_INTERVAL_SECONDS = 1.0
# A save of the small memory, on a busy machine.
_SAVE_SECONDS = 5.0
_ORPHAN_SECONDS = 5.0
_SETTINGS = {
    "agent.network.width": 0.125,
    "agent.network.hidden": 32,
    "train.burn_in": 200,
    "train.steps_per_update": 16,
    "replay.maxlen": 8000,
    "replay.reserve_gb": 0,
    "evaluation.every_minutes": "null",
    "log.every_seconds": 0.2,
    "log.tensorboard": "false",
    "checkpoint.every_minutes": _INTERVAL_SECONDS / 60,
}


def main() -> int:
    """Runs the kills and prints what came of them; exit code 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    random.seed(options.seed)
    problems: list[str] = []
    ages: list[float] = []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        steps = 0
        for kill in range(1, options.kills + 1):
            try:
                age, steps = _one(folder, steps)
                ages.append(age)
            except AssertionError as error:
                problems.append(f"kill {kill}: {error}")
            if kill % 10 == 0:
                print(f"{kill} kills, step {steps:,}, {len(problems)} problems", flush=True)
        checkpoint, payload, _ = find_checkpoint(folder)
    print("| what | result |")
    print("|---|---|")
    print(f"| kills of the learner with SIGKILL | {options.kills} |")
    print(f"| checkpoints lost, unreadable or too old | {len(problems)} |")
    if ages:
        print(f"| oldest age of the newest checkpoint | {max(ages):.1f} s |")
    print(f"| the run came to | step {payload['steps']:,}, {checkpoint.name} |")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def _one(folder: Path, steps_before: int) -> tuple[float, int]:
    """Starts or resumes, kills, looks; returns (age of the newest checkpoint, its step)."""
    log = folder.parent / "log.txt"
    newest = _newest(folder)
    with log.open("w") as stream:
        process = subprocess.Popen(_command(folder), stderr=stream)
    # Wait for the first checkpoint of this process, then for a random moment.
    deadline = time.monotonic() + 60
    while _newest(folder) == newest:
        assert process.poll() is None, f"ended by itself: {log.read_text()[-500:]}"
        assert time.monotonic() < deadline, f"no checkpoint in a minute: {log.read_text()[-500:]}"
        time.sleep(0.02)
    told = log.read_text()
    assert "is lost" not in told, told[-500:]
    assert "passed over" not in told, told[-500:]
    stale = [path for path in folder.rglob(f"*{TEMPORARY_SUFFIX}") if _age(path) > 10]
    assert not stale, f"left over: {stale}"
    time.sleep(random.uniform(0, 2 * _INTERVAL_SECONDS))
    actors = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(actors, timeout=_ORPHAN_SECONDS)
    assert not alive, f"{len(alive)} processes outlived the learner"
    checkpoint, payload, unreadable = find_checkpoint(folder)
    assert not unreadable, unreadable[0]
    steps = int(payload["steps"])
    assert steps >= steps_before, f"step {steps} is before {steps_before}"
    # The log's last line is the moment of the kill, give or take a fifth of a second.
    age = log.stat().st_mtime - checkpoint.stat().st_mtime
    assert age < _INTERVAL_SECONDS + _SAVE_SECONDS, f"{checkpoint.name} is {age:.1f} s old"
    return max(0.0, age), steps


def _command(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "mario_ddqn.train_cli"]
    if folder.exists():
        return [*command, "--resume", str(folder)]
    command += ["--config", str(ROOT / "configs" / "ddqn.yaml"), "--runs", str(folder.parent)]
    command += ["--name", folder.name]
    for key, value in _SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    return command


def _newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*.chkpt"), default=None)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
