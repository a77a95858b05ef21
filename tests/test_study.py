"""A study of two small trainings: stopped, gone on with, its tables and curves."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow
SMALL = """
env: {stall_steps: 20, actions: [right+B, right+A+B]}
agent: {network: {width: 0.125, hidden: 16}, batch_size: 4}
exploration: {kind: ladder}
replay: {maxlen: 4000, reserve_gb: 0}
train: {burn_in: 100, steps_per_update: 16, lanes: 2}
evaluation: {every_minutes: 0.01, episodes: 1}
log: {every_seconds: 0.2, tensorboard: false}
"""


def test_a_study_is_stopped_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    study = tmp_path / "study.yaml"
    study.write_text(
        f"""
minutes: [0.05, 0.2]
seeds: [1]
stage: 1-1
episodes: 2
evaluation_seed: 9
runs:
  plain: {{config: {tmp_path / "small.yaml"}}}
  "n-step 3": {{config: {tmp_path / "small.yaml"}, set: [agent.n_step=3], seeds: [1, 2]}}
"""
    )
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), str(study), "--out", str(out)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    metrics = out / "plain" / "seed-1" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 130
    assert told.endswith("stopped; the same command goes on\n")
    assert not (out / "plain" / "seed-1" / "result-0.2.json").exists()

    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (out / "plain" / "seed-1.log").read_text().count("resuming") >= 1
    with (out / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["run"], row["seed"], row["minutes"]) for row in rows] == [
        (run, seed, minutes)
        for run, seed in (("plain", "1"), ("n-step 3", "1"), ("n-step 3", "2"))
        for minutes in ("0.05", "0.2")
    ]
    assert all(float(row["greedy_mean_x"]) > 100 for row in rows)
    assert "| n-step 3 | 2 | 0.2 |" in done.stdout
    assert (out / "curves.png").stat().st_size > 5000
    result = out / "plain" / "seed-1" / "result-0.2.json"
    before = result.stat().st_mtime
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0
    assert result.stat().st_mtime == before
