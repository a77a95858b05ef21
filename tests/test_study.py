"""A study of two small trainings: stopped, gone on with, its tables and curves."""

from __future__ import annotations

import csv
import json
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
set: [agent.gamma=0.8]
seeds: [1]
stage: 1-1
episodes: 2
evaluation_seed: 9
runs:
  plain: {{config: {tmp_path / "small.yaml"}}}
  "n-step 3":
    {{config: {tmp_path / "small.yaml"}, set: [agent.n_step=3], seeds: [1, 2], stage: 1-3}}
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
    assert "stage: 1-3\n" in (out / "n-step-3" / "seed-2" / "config.yaml").read_text()
    assert "gamma: 0.8\n" in (out / "n-step-3" / "seed-2" / "config.yaml").read_text()
    assert "n_step: 3\n" in (out / "n-step-3" / "seed-2" / "config.yaml").read_text()
    assert done.stdout.startswith("1-1, 1-3; best checkpoint so far, 2 greedy episodes, seed 9;")
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


def test_a_training_that_cleared_enough_is_left_at_that(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        """
minutes: [30, 60, 120]
enough: 0.9
seeds: [1]
stage: 1-2
episodes: 10
evaluation_seed: 9
runs:
  plain: {config: not there}
  short: {config: not there, minutes: [30]}
"""
    )
    folder, short = (tmp_path / "out" / name / "seed-1" for name in ("plain", "short"))
    folder.mkdir(parents=True)
    short.mkdir(parents=True)
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), str(study)]
    command += ["--out", str(tmp_path / "out")]
    result = {"first_flag_step": 3, "steps": 4, "greedy_clear_rate_interval": [0, 1]}
    result |= {"greedy_episodes_played": 10, "sticky_clears": 5, "greedy_mean_x": 6.0}
    (short / "result-30.json").write_text(json.dumps({**result, "greedy_clears": 0}))
    codes = []
    for minutes, clears in ((30, 8), (60, 9)):
        line = json.dumps({**result, "greedy_clears": clears})
        (folder / f"result-{minutes}.json").write_text(line)
        codes.append(subprocess.run(command, capture_output=True, timeout=60).returncode)
    assert codes == [1, 0]  # after 30 minutes it goes on, and finds no configuration
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| plain | 1 | 60 | 9 of 10 |" in table
    assert "| short | 1 | 30 | 0 of 10 |" in table


def test_the_table_tells_what_evaluations_on_the_way_came_to(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        """
minutes: [1, 2]
seeds: [1]
stage: 1-1
episodes: 10
evaluation_seed: 9
runs: {plain: {config: not there}}
"""
    )
    folder = tmp_path / "out" / "plain" / "seed-1"
    folder.mkdir(parents=True)
    result = {"first_flag_step": None, "greedy_clear_rate_interval": [0, 1], "greedy_clears": 7}
    result |= {"greedy_episodes_played": 10, "sticky_clears": 5, "greedy_mean_x": 6.0}
    for minutes, steps in ((1, 100), (2, 200)):
        line = json.dumps({**result, "steps": steps})
        (folder / f"result-{minutes}.json").write_text(line)
    lines = [
        {"step": step, "seconds": step, "clear_rate": rate, "mean_x": 6.0}
        for step, rate in ((50, 0.25), (100, 0.75), (150, 1.0), (200, 0.4), (250, 0.0))
    ]
    (folder / "evaluations.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), str(study), "--tables-only"]
    subprocess.run([*command, "--out", str(tmp_path / "out")], check=True, timeout=60)
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| plain | 1 | 1 | 7 of 10 | 0% to 100% | 5 | 6 | 50% | - | 100 |" in table
    assert "| plain | 1 | 2 | 7 of 10 | 0% to 100% | 5 | 6 | 60% | - | 200 |" in table
