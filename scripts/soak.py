"""Thirty million transitions through a real training, then every kind of ending: nothing leaks.

    python scripts/soak.py

Only the emulator is replaced (synthetic_core.py): actor processes, shared memory,
replay memory, learner, evaluations, checkpoints and metrics are those of
mario-train. Memory, file descriptors and threads of all processes are compared
between a tenth of the way and the end; after it, and after every other kind of
ending, processes, semaphores and shared memory that are left are counted.
Takes about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from mario_ddqn import train_cli
from mario_ddqn.cores import base
from mario_ddqn.files import TEMPORARY_SUFFIX

# Spawned actors import this file too, and so find the same core.
base.CORES["fceumm"] = ("synthetic_core:SyntheticCore", "numpy", "numpy")

ROOT = Path(__file__).parent.parent
_SHARED_MEMORY = Path("/dev/shm")
_GROWTH = 0.03
_END_SECONDS = 120.0
_ORPHAN_SECONDS = 5.0
_CONFIG = """
env: {actions: [right+B, right+A+B], frame_skip: 1, size: 36, stack: 4}
agent: {network: {width: 0.125, hidden: 16, dueling: true}, n_step: 5, batch_size: 32}
exploration: {kind: ladder, repeat_max: 16}
start_states: {share: 0.2}
replay: {maxlen: 200000, reserve_gb: 0}
train: {burn_in: 2000, steps_per_update: 500, lanes: 64, actors: 2, publish_every: 5}
evaluation: {every_minutes: 1, episodes: 2}
checkpoint: {every_minutes: 1, every_steps: 100000000}
log: {every_seconds: 1, tensorboard: true}
"""


def main() -> int:
    """Soaks, ends trainings in every way, prints both tables; exit code 1 if anything leaked."""
    if sys.argv[1:2] == ["--train"]:
        return train_cli.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=30_000_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        soak = _soak(folder, options.transitions)
        leaks = {"end of the soak": soak.leaks}
        for name, end in _ENDINGS.items():
            leaks[name] = _leaks_of(folder, name, end)
            print(f"{name}: {leaks[name] or 'nothing left'}", file=sys.stderr, flush=True)
    print(f"{options.transitions:,} transitions in {soak.seconds / 60:.0f} minutes, ", end="")
    print(f"{options.transitions / soak.seconds:,.0f} a second\n")
    print("| of all processes | at a tenth | at the end | growth |\n|---|---|---|---|")
    for name, (early, late) in soak.sizes.items():
        print(f"| {name} | {early:,.0f} | {late:,.0f} | {late / early - 1:+.1%} |")
    print("\n| ending | left behind |\n|---|---|")
    for name, left in leaks.items():
        print(f"| {name} | {'; '.join(left) or 'nothing'} |")
    if options.json is not None:
        figures = {"seconds": soak.seconds, "sizes": soak.sizes, "leaks": leaks}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    grown = [late / early - 1 > _GROWTH for early, late in soak.sizes.values()]
    return 1 if any(grown) or any(leaks.values()) else 0


class Training:
    """A training on the synthetic core in a process of its own, and all it has started."""

    def __init__(self, folder: Path, name: str, *settings: str) -> None:
        config = folder / "soak.yaml"
        config.write_text(_CONFIG)
        command = [sys.executable, __file__, "--train", "--config", str(config)]
        command += ["--runs", str(folder), "--name", name]
        for setting in settings:
            command += ["--set", setting]
        self.folder = folder / name
        self.log = folder / f"{name}.log"
        self._shared_before = _shared_memory()
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(command, stderr=stream)
        self._seen: set[psutil.Process] = set()

    def family(self) -> list[psutil.Process]:
        """It and all its descendants that are alive."""
        root = psutil.Process(self.process.pid)
        family = [root, *root.children(recursive=True)]
        self._seen.update(family)
        return family

    def actors(self) -> list[psutil.Process]:
        """Its actor processes, known by their memory."""
        return [child for child in self.family()[1:] if child.memory_info().rss > 1e8]

    def wait_for(self, step: int) -> None:
        """Until its metrics have come to a step."""
        while self.step() < step:
            if self.process.poll() is not None:
                raise SystemExit(f"the training ended: {self.log.read_text()[-1000:]}")
            self.family()
            time.sleep(0.2)

    def step(self) -> int:
        """The newest step in its metrics."""
        metrics = self.folder / "metrics.csv"
        if not metrics.exists():
            return 0
        with metrics.open() as stream:
            rows = [row for row in csv.DictReader(stream) if row.get("replay")]
        return int(rows[-1]["step"]) if rows else 0

    def leaks(self) -> list[str]:
        """Waits for its end and tells what is left of it."""
        self.process.wait(_END_SECONDS)
        _, alive = psutil.wait_procs(list(self._seen), timeout=_ORPHAN_SECONDS)
        left = [f"process {process.pid} ({process.status()})" for process in alive]
        left += [str(path) for path in sorted(_shared_memory() - self._shared_before)]
        left += [path.name for path in self.folder.rglob(f"*{TEMPORARY_SUFFIX}")]
        left += [line for line in self.log.read_text().splitlines() if "resource_tracker" in line]
        return left


def _shared_memory() -> set[Path]:
    """Named semaphores (sem.*) and shared-memory segments."""
    return set(_SHARED_MEMORY.iterdir()) if _SHARED_MEMORY.is_dir() else set()


# -- the soak ------------------------------------------------------------------


@dataclass
class Soak:
    """What it came to: figure -> (at a tenth of the way, at the end)."""

    seconds: float
    sizes: dict[str, tuple[float, float]]
    leaks: list[str]


def _soak(folder: Path, transitions: int) -> Soak:
    training = Training(folder, "soak", f"train.steps={transitions}")
    began = time.monotonic()
    early: dict[str, float] = {}
    late: dict[str, float] = {}
    for percent in (10, 20, 30, 40, 50, 60, 70, 80, 90, 97):
        training.wait_for(transitions * percent // 100)
        late = _sizes(training)
        early = early or late
        print(f"{percent}%: {late}", file=sys.stderr, flush=True)
    training.process.wait()
    seconds = time.monotonic() - began
    leaks = training.leaks()
    if training.process.returncode != 0:
        leaks.append(f"exit code {training.process.returncode}")
    return Soak(seconds, {name: (early[name], late[name]) for name in early}, leaks)


def _sizes(training: Training) -> dict[str, float]:
    """Of all processes together; memory as the median of a few looks, shared pages once."""
    looks = []
    for _ in range(5):
        looks.append(sum(process.memory_full_info().pss for process in training.family()))
        time.sleep(0.5)
    family = training.family()
    return {
        "memory, MB": sorted(looks)[len(looks) // 2] / 1e6,
        "file descriptors": sum(process.num_fds() for process in family),
        "threads": sum(process.num_threads() for process in family),
        "processes": len(family),
    }


# -- endings -------------------------------------------------------------------


def _leaks_of(folder: Path, name: str, end: Callable[[Training], None]) -> list[str]:
    training = Training(folder, name.replace(" ", "-"))
    training.wait_for(5000)
    end(training)
    left = training.leaks()
    if "Traceback" in training.log.read_text():
        left.append("a traceback was shown")
    # A killed writer may leave its temporary file; the next start removes it.
    return [what for what in left if "SIGKILL" not in name or TEMPORARY_SUFFIX not in what]


def _signal(number: signal.Signals) -> Callable[[Training], None]:
    return lambda training: training.process.send_signal(number)


def _twice(training: Training) -> None:
    training.process.send_signal(signal.SIGINT)
    training.process.send_signal(signal.SIGINT)


def _kill_one_actor(training: Training) -> None:
    training.actors()[0].kill()
    training.wait_for(training.step() + 20_000)
    training.process.send_signal(signal.SIGINT)


def _kill_actors_until_it_gives_up(training: Training) -> None:
    while training.process.poll() is None:
        for actor in training.actors():
            actor.kill()
        time.sleep(0.5)


def _remove_folder(training: Training) -> None:
    training.folder.rename(training.folder.with_suffix(".moved"))
    training.process.send_signal(signal.SIGINT)


_ENDINGS: dict[str, Callable[[Training], None]] = {
    "SIGINT": _signal(signal.SIGINT),
    "SIGINT twice": _twice,
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGHUP": _signal(signal.SIGHUP),
    "SIGKILL of the learner": _signal(signal.SIGKILL),
    "SIGKILL of an actor": _kill_one_actor,
    "SIGKILL of actors until it gives up": _kill_actors_until_it_gives_up,
    "folder gone": _remove_folder,
}


if __name__ == "__main__":
    sys.exit(main())
