"""How long the training loop stands still while a replay memory of 1 GB is saved.

    python scripts/save_stall.py

A real training on the synthetic core fills a memory of 142,000 observations of 84x84
and saves it twice: all of it, then what is new. The longest time from one update to
the next while a save is under way is compared with the longest without.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mario_ddqn import train_cli
from mario_ddqn.agent import DDQNAgent, UpdateResult
from mario_ddqn.checkpoint import Checkpointer
from mario_ddqn.cores import base
from mario_ddqn.replay import Batch

# Spawned actors import this file too, and so find the same core.
base.CORES["fceumm"] = ("synthetic_core:SyntheticCore", "numpy", "numpy")

_TRANSITIONS = 142_000
_CONFIG = f"""
env: {{actions: [right+B, right+A+B], frame_skip: 1}}
agent: {{network: {{width: 0.5, hidden: 256, dueling: true}}, n_step: 5, batch_size: 32}}
exploration: {{kind: ladder}}
replay: {{maxlen: {_TRANSITIONS}, reserve_gb: 0}}
train: {{steps: 330000, burn_in: 2000, steps_per_update: 60, lanes: 16, actors: 1}}
evaluation: {{every_minutes: null}}
checkpoint: {{every_minutes: 60, every_steps: 150000}}
log: {{every_seconds: 5, tensorboard: false}}
"""


def main() -> int:
    """Trains in a child and prints the table; exit code 1 if a save held it up for 200 ms."""
    if sys.argv[1:2] == ["--train"]:
        return _train(sys.argv[2:])
    with tempfile.TemporaryDirectory() as parent:
        config = Path(parent) / "stall.yaml"
        config.write_text(_CONFIG)
        command = [sys.executable, __file__, "--train", "--config", str(config)]
        command += ["--runs", parent, "--name", "run"]
        output = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
        replay = Path(parent) / "run" / "replay"
        stored = sum(file.stat().st_size for file in replay.iterdir())
    figures = json.loads(output.splitlines()[-1])
    print(f"replay memory of {_TRANSITIONS * 84 * 84 / 1e9:.2f} GB, {stored / 1e9:.2f} GB on disk")
    print("| longest from one update to the next | ms |\n|---|---|")
    print(f"| while nothing is saved | {1000 * figures['without']:.0f} |")
    print(f"| while a save is under way | {1000 * figures['during']:.0f} |")
    print(f"| saves took | {', '.join(f'{seconds:.1f} s' for seconds in figures['saves'])} |")
    return 1 if figures["during"] > 0.2 else 0


def _train(arguments: list[str]) -> int:
    """mario-train with a watch on every update; the save at the end is waited for."""
    gaps: list[tuple[float, bool]] = []
    saves: list[float] = []
    checkpointers: list[Checkpointer] = []
    state = {"at": 0.0, "busy_since": 0.0}
    plain_update, plain_save = DDQNAgent.update, Checkpointer.save

    def update(self: DDQNAgent, batch: Batch) -> UpdateResult:
        result = plain_update(self, batch)
        now = time.perf_counter()
        busy = any(checkpointer.busy for checkpointer in checkpointers)
        if busy and not state["busy_since"]:
            state["busy_since"] = now
        elif not busy and state["busy_since"]:
            saves.append(now - state["busy_since"])
            state["busy_since"] = 0.0
        if state["at"]:
            gaps.append((now - state["at"], busy))
        state["at"] = now
        return result

    def save(self: Checkpointer, *positional: object, **named: object) -> None:
        checkpointers[:] = [self]
        plain_save(self, *positional, **named)  # type: ignore[arg-type]

    DDQNAgent.update, Checkpointer.save = update, save  # type: ignore[method-assign]
    code = train_cli.main(arguments)
    # The first seconds have the actors' start in them.
    settled = gaps[len(gaps) // 20 :]
    figures = {
        "during": max(seconds for seconds, busy in settled if busy),
        "without": max(seconds for seconds, busy in settled if not busy),
        "saves": saves,
    }
    print(json.dumps(figures))
    return code


if __name__ == "__main__":
    sys.exit(main())
