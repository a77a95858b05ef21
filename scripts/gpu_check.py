"""Checks on a machine with a CUDA GPU what no other machine can, in under 8 minutes.

    python scripts/gpu_check.py --json gpu.json

CUDA training with the replay memory on the GPU and in RAM, bf16, torch.compile,
memory-aware sizing with the real figures, an allocation that does not fit, and
runs that go on on another device. Prints a line a check; exit code 1 if one
fails, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mario_ddqn.config import ReplayConfig
from mario_ddqn.errors import UserError
from mario_ddqn.frames import GPU_WINDOW, GpuFrames
from mario_ddqn.rings import Rings
from mario_ddqn.sizing import free_gpu_memory, plan_replay, transition_bytes

ROOT = Path(__file__).parent.parent
GPU = torch.device("cuda")
_TRAIN_SECONDS = 40
_SHORT = ["--set", "log.every_seconds=1", "--set", "log.tensorboard=false"]


def main() -> int:
    """Runs all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_check: no CUDA GPU here", file=sys.stderr)
        return 2
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    figures: dict[str, dict[str, float]] = {}
    failures = 0
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        checks: dict[str, Callable[[], dict[str, float]]] = {
            "sizing": sizing,
            "does not fit": does_not_fit,
            "train, replay on the GPU": lambda: train(folder, "gpu", ["replay.device=cuda"]),
            "train, replay in RAM": lambda: train(folder, "ram", ["replay.device=cpu"]),
            "train, bf16": lambda: train(folder, "bf16", ["agent.bf16=true"]),
            "train, compiled": lambda: train(folder, "compiled", ["agent.compile=true"]),
            "resume on the CPU": lambda: resume(folder / "gpu", "cpu"),
            "resume on the GPU": lambda: resume(folder / "gpu", "cuda"),
        }
        for name, check in checks.items():
            began = time.monotonic()
            try:
                figures[name] = check()
                verdict = ", ".join(f"{key} {value:,.1f}" for key, value in figures[name].items())
            except (AssertionError, subprocess.CalledProcessError, RuntimeError) as error:
                failures += 1
                verdict = f"FAILED: {error}"
            print(f"{name:<26} {time.monotonic() - began:5.0f} s  {verdict}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if failures else 0


def sizing() -> dict[str, float]:
    """`auto` leaves its reserve, and what it promises can really be allocated."""
    free = free_gpu_memory(GPU)
    config = ReplayConfig(maxlen="auto", device="cuda", reserve_gb=max(2.0, free / 1e9 - 8))
    plan = plan_replay(config, size=84, device=GPU)
    assert plan.device == "cuda"
    assert plan.size_bytes <= free - config.reserve_gb * 1e9
    rings = Rings(8, plan.maxlen // 8, (84, 84), window=GPU_WINDOW)
    frames = GpuFrames(rings, GPU)
    taken = free - free_gpu_memory(GPU)
    assert taken >= 0.95 * plan.maxlen * 84 * 84, f"only {taken:,} bytes were taken"
    del frames
    torch.cuda.empty_cache()
    return {"free_gb": free / 1e9, "maxlen": plan.maxlen}


def does_not_fit() -> dict[str, float]:
    """A number over what is free is refused with the largest that fits."""
    wanted = 2 * free_gpu_memory(GPU) // transition_bytes(84)
    try:
        plan_replay(ReplayConfig(maxlen=wanted, device="cuda"), size=84, device=GPU)
    except UserError as error:
        assert "bytes of GPU memory" in str(error), str(error)
        return {"refused": wanted}
    raise AssertionError(f"{wanted:,} transitions were accepted")


def train(folder: Path, name: str, settings: list[str]) -> dict[str, float]:
    """mario-train on the GPU with the tutorial's network; speed and utilisation."""
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--device", "cuda"]
    command += ["--config", str(ROOT / "configs" / "tutorial.yaml"), "--name", name]
    command += ["--runs", str(folder), *_SHORT]
    settings = [*settings, "train.burn_in=2000", "train.lanes=8", "train.steps_per_update=4"]
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    used: list[float] = []
    metrics = folder / name / "metrics.csv"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        rows = _rows(metrics)
        if rows and int(rows[-1]["updates"]) > 0:
            deadline = min(deadline, time.monotonic() + _TRAIN_SECONDS) if not used else deadline
            used.append(_utilisation())
        time.sleep(1)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors[-400:]
    rows = [row for row in _rows(metrics) if int(row["updates"]) > 0]
    assert len(rows) > 5, errors[-400:]
    seconds = float(rows[-1]["seconds"]) - float(rows[0]["seconds"])
    return {
        "steps/s": (int(rows[-1]["step"]) - int(rows[0]["step"])) / seconds,
        "updates/s": (int(rows[-1]["updates"]) - int(rows[0]["updates"])) / seconds,
        "gpu_percent": statistics.mean(used),
    }


def resume(folder: Path, device: str) -> dict[str, float]:
    """The run goes on on a device, with its memories."""
    before = int(_rows(folder / "metrics.csv")[-1]["step"])
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--resume", str(folder)]
    command += ["--device", device, "--steps", str(before + 1000)]
    command += ["--set", "replay.device=auto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-400:]
    assert "lost" not in done.stderr, done.stderr[-400:]
    after = int(_rows(folder / "metrics.csv")[-1]["step"])
    assert after >= before + 1000
    return {"steps": after - before}


def _rows(metrics: Path) -> list[dict[str, str]]:
    if not metrics.exists():
        return []
    rows = csv.DictReader(metrics.read_text().splitlines())
    return [row for row in rows if row.get("replay")]


def _utilisation() -> float:
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.check_output(command, text=True).splitlines()[0])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return float("nan")


if __name__ == "__main__":
    sys.exit(main())
