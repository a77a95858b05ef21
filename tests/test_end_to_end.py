"""The commands as a user runs them: real processes, signals, files and videos."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from mario_ddqn.config_file import load_config

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "configs" / "ddqn.yaml"
SMALL = [
    "agent.network.width=0.125",
    "agent.network.hidden=32",
    "train.burn_in=100",
    "train.steps_per_update=8",
    "replay.maxlen=10000",
    "replay.reserve_gb=0",
    "log.every_seconds=0.2",
]
pytestmark = pytest.mark.slow


def command(name: str, *arguments: object) -> list[str]:
    module = {"mario-train": "mario_ddqn.train_cli", "mario-play": "mario_ddqn.play_cli"}[name]
    return [sys.executable, "-m", module, *map(str, arguments)]


def run(name: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(name, *arguments), cwd=cwd, capture_output=True, text=True, timeout=300
    )


def sets() -> list[str]:
    return [part for change in SMALL for part in ("--set", change)]


def train_until(cwd: Path, *arguments: object, step: int, signals: list[int]) -> tuple[int, str]:
    """Starts mario-train, sends a signal at the first line after `step`; (exit code, output)."""
    process = subprocess.Popen(
        command("mario-train", *arguments), cwd=cwd, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("step ") and "/" in line and _step(line) >= step and signals:
            process.send_signal(signals.pop(0))
    process.stderr.close()
    return process.wait(timeout=60), "".join(lines)


def _step(line: str) -> int:
    return int(line.split()[1].split("/")[0].replace(",", ""))


def test_train_stop_resume_play_film(tmp_path: Path) -> None:
    arguments = ["--config", CONFIG, "--steps", 3000, "--seed", 5, *sets()]
    code, output = train_until(tmp_path, *arguments, step=300, signals=[signal.SIGINT])
    assert code == 0
    folder = tmp_path / "checkpoints" / "ddqn-1-1"
    assert f"mario-train --resume checkpoints{os.sep}ddqn-1-1" in output
    # No notice or warning of any package.
    for word in ("Warning", "warn", "gym ", "Gym ", "deprecat", "Traceback"):
        assert word not in output
    for part in ("1-1 on ", "8 lanes", "weights on cpu", "10,000 transitions", "steps/s", "left"):
        assert part in output
    stopped_at = max(int(path.stem.split("-")[1]) for path in folder.glob("step-*.chkpt"))
    assert 300 <= stopped_at < 3000
    config = load_config(folder / "config.yaml")
    assert (config.seed, config.train.steps, config.agent.network.hidden) == (5, 3000, 32)

    done = run("mario-train", "--resume", folder, "--steps", stopped_at + 400, cwd=tmp_path)
    assert done.returncode == 0
    assert f"at step {stopped_at:,}" in done.stderr
    assert "memories" not in done.stderr
    rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(steps)
    assert steps[-1] >= stopped_at + 400

    options = ["--episodes", 2, "--epsilon", 0.2, "--json"]
    played = run("mario-play", "--checkpoint", folder, *options, cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert played.stderr == ""
    result = json.loads(played.stdout)
    assert (result["episodes_played"], result["stage"]) == (2, "1-1")
    assert 0 <= result["clear_rate"] <= 1
    assert all(episode["x"] >= 40 for episode in result["episodes"])
    assert [Path(video).parent for video in result["videos"]] == [folder / "videos"] * 2
    video = Path(result["videos"][0])
    with av.open(str(video)) as container:
        frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    episode = result["episodes"][0]
    # Every frame of the game: 4 a step, the no-ops before and the moments after.
    at_most = 4 * episode["steps"] + episode["noops"] + 120
    assert at_most - 4 < len(frames) <= at_most
    assert frames[0].shape == (448, 480, 3)
    middle = frames[len(frames) // 2].astype(int)
    assert np.abs(frames[0] - middle).mean() > 3


def test_a_second_ctrl_c_ends_at_once_and_sigterm_ends_well(tmp_path: Path) -> None:
    arguments = ["--config", CONFIG, "--steps", 100_000, *sets(), "--name", "run"]
    code, _ = train_until(tmp_path, *arguments, step=200, signals=[signal.SIGTERM])
    assert code == 0
    assert len(list((tmp_path / "checkpoints" / "run").glob("step-*.chkpt"))) >= 1


def test_best_of_and_gif_and_nothing_overwritten(tmp_path: Path) -> None:
    assert (
        run("mario-train", "--config", CONFIG, "--steps", 200, *sets(), cwd=tmp_path).returncode
        == 0
    )
    folder = tmp_path / "checkpoints" / "ddqn-1-1"
    play = ["mario-play", "--checkpoint", folder, "--best-of", 2, "--epsilon", 0.5]
    first = run(*play, "--out", "best.gif", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "clear rate" in first.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.gif", "checkpoints"]
    content = (tmp_path / "best.gif").read_bytes()
    second = run(*play, "--out", "best.gif", cwd=tmp_path)
    assert second.returncode == 2
    assert "exists" in second.stderr
    assert (tmp_path / "best.gif").read_bytes() == content
    third = run(*play, "--no-video", "--stage", "1-2", cwd=tmp_path)
    assert third.returncode == 0
    assert "stage 1-2" in third.stdout


def test_scripts_export_and_evaluate(tmp_path: Path) -> None:
    trained = run("mario-train", "--config", CONFIG, "--steps", 200, *sets(), cwd=tmp_path)
    assert trained.returncode == 0
    folder = tmp_path / "checkpoints" / "ddqn-1-1"

    def script(name: str, *arguments: object) -> subprocess.CompletedProcess:
        path = ROOT / "scripts" / f"{name}.py"
        command = [sys.executable, path, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    exported = script("export", folder, "small.chkpt")
    assert exported.returncode == 0, exported.stderr
    assert script("export", folder, "small.chkpt").returncode == 2
    whole = max(path.stat().st_size for path in folder.glob("*.chkpt"))
    assert (tmp_path / "small.chkpt").stat().st_size < whole / 2
    evaluated = script("evaluate", "small.chkpt", "--episodes", 2, "--json", "e.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "sticky actions" in evaluated.stdout
    results = json.loads((tmp_path / "e.json").read_text())
    assert results["greedy"]["episodes_played"] == 2
    assert script("evaluate", "nowhere.chkpt").returncode == 2
    resumed = run("mario-train", "--resume", "small.chkpt", cwd=tmp_path)
    assert resumed.returncode == 2
    assert "only the weights" in resumed.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mario-train", [], "one of the arguments --config --resume is required"),
        ("mario-train", ["--config", "none.yaml"], "none.yaml: cannot read the configuration"),
        ("mario-train", ["--config", CONFIG, "--set", "agent.gama=1"], "did you mean agent.gamma?"),
        ("mario-train", ["--config", CONFIG, "--device", "cuda"], "device: is cuda"),
        ("mario-train", ["--config", CONFIG, "--stage", "9-9"], "env.stage: is '9-9'"),
        ("mario-train", ["--resume", "nowhere"], "nowhere: cannot read the checkpoint"),
        ("mario-train", ["--resume", CONFIG], "damaged, or no checkpoint of mario-train"),
        ("mario-play", ["--checkpoint", "nowhere"], "nowhere: cannot read the checkpoint"),
        ("mario-play", ["--checkpoint", "."], "no readable checkpoint in this folder"),
        ("mario-play", ["--checkpoint", CONFIG], "damaged, or no checkpoint of mario-train"),
        ("mario-play", ["--checkpoint", "x", "--epsilon", "2"], "expected a number from 0 to 1"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, name: str, arguments: list, message: str
) -> None:
    done = run(name, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(name)
    assert list(tmp_path.iterdir()) == []


def test_help_is_there_without_torch(tmp_path: Path) -> None:
    for name in ("mario-train", "mario-play"):
        done = run(name, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "exit code" in done.stdout or "Videos" in done.stdout
