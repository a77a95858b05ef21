"""Faults on purpose: real processes, real signals, broken files. `pytest -m faults`."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import termios
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mario_ddqn.checkpoint import find_checkpoint, load_checkpoint
from mario_ddqn.config_file import parse_config
from mario_ddqn.errors import UserError
from mario_ddqn.migrations import FORMAT
from mario_ddqn.policy import load_policy
from mario_ddqn.run import resume

ROOT = Path(__file__).parent.parent
PRETRAINED = ROOT / "checkpoints" / "pretrained" / "1-1.chkpt"
pytestmark = pytest.mark.faults
SMALL = """
env: {stall_steps: 30, actions: [right+B, right+A+B]}
agent: {network: {width: 0.125, hidden: 16}, batch_size: 4}
exploration: {kind: ladder}
replay: {maxlen: 4000, reserve_gb: 0}
train: {steps: 1000000, burn_in: 100, steps_per_update: 8, lanes: 2}
log: {every_seconds: 0.2, tensorboard: false}
"""


class Training:
    """mario-train in a process (and session) of its own."""

    def __init__(self, folder: Path, *overrides: str, **options) -> None:
        config = folder / "small.yaml"
        config.write_text(SMALL)
        command = [sys.executable, "-m", "mario_ddqn.train_cli", "--config", str(config)]
        command += ["--runs", str(folder), "--name", "run"]
        for override in overrides:
            command += ["--set", override]
        self.folder = folder / "run"
        pipe = {"stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **{**pipe, **options})

    def lines_until(self, step: int) -> list[str]:
        """Reads its output up to the first line after a step."""
        lines = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            lines.append(line)
            if (
                line.startswith("step ")
                and int(line.split()[1].split("/")[0].replace(",", "")) > step
            ):
                return lines
        raise AssertionError("".join(lines))

    def end(self) -> tuple[int, str]:
        """(exit code, the rest of its output)."""
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def test_kills_at_random_moments() -> None:
    command = [sys.executable, ROOT / "scripts" / "kill_test.py", "--kills", "10", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| checkpoints lost, unreadable or too old | 0 |" in done.stdout


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_well(tmp_path: Path, name: str) -> None:
    training = Training(tmp_path)
    training.lines_until(300)
    training.process.send_signal(getattr(signal, name))
    code, rest = training.end()
    assert code == 0
    assert "saved; go on" in rest
    assert find_checkpoint(training.folder)[1]["steps"] > 300
    assert not (training.folder / "lock").exists()


def test_second_ctrl_c_ends_at_once_with_a_good_checkpoint(tmp_path: Path) -> None:
    training = Training(tmp_path, "checkpoint.every_minutes=0.02")
    training.lines_until(300)
    training.process.send_signal(signal.SIGINT)
    training.process.send_signal(signal.SIGINT)
    code, rest = training.end()
    assert code in (0, 130)
    assert "Traceback" not in rest
    assert find_checkpoint(training.folder)[2] == []


def test_closed_terminal(tmp_path: Path) -> None:
    """The terminal goes away: SIGHUP and a dead standard error; a checkpoint is left."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    training = Training(tmp_path, stderr=theirs, start_new_session=True, text=False)
    os.close(theirs)
    metrics = training.folder / "metrics.csv"
    seen = b""
    while b"%|" not in seen or _last_step(metrics) < 100:
        ready, _, _ = select.select([ours], [], [], 30)
        assert ready, seen
        seen += os.read(ours, 65536)
    os.close(ours)
    training.process.send_signal(signal.SIGHUP)
    assert training.process.wait(timeout=60) == 0
    assert find_checkpoint(training.folder)[1]["steps"] > 0


def _last_step(metrics: Path) -> int:
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return int(lines[-1].split(",")[0]) if len(lines) > 1 and lines[-1].count(",") > 5 else 0


def test_nobody_reads_the_output_any_more(tmp_path: Path) -> None:
    training = Training(tmp_path, "train.steps=1500")
    training.lines_until(200)
    assert training.process.stderr is not None
    training.process.stderr.close()
    assert training.process.wait(timeout=120) == 0
    assert find_checkpoint(training.folder)[1]["steps"] >= 1500


def test_second_training_in_the_folder_is_refused(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lines_until(200)
    with pytest.raises(UserError, match=f"process {training.process.pid} on"):
        resume(training.folder, [], lambda: True)
    training.process.terminate()
    assert training.end()[0] == 0


def test_vanished_folder_does_not_end_the_training(tmp_path: Path) -> None:
    """The folder is moved away and something in its place can't be written: training goes on."""
    training = Training(tmp_path, "checkpoint.every_minutes=0.02")
    training.lines_until(300)
    training.folder.rename(tmp_path / "away")
    training.folder.write_text("no folder")
    told = "".join(training.lines_until(1200))
    training.process.terminate()
    code, rest = training.end()
    assert "not saved" in told + rest
    assert code == 0
    assert find_checkpoint(tmp_path / "away")[2] == []


def file_size_limit(size: int) -> Callable[[], None]:
    """A disk with room for no file larger than that, for a process to be started."""

    def limit() -> None:
        # Python ignores the signal that comes with it, but libraries that the process loads
        # may be killed by it.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_full_disk_training_goes_on_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lines_until(300)
    training.process.send_signal(signal.SIGINT)
    assert training.end()[0] == 0
    good = find_checkpoint(training.folder)[0]
    before = good.read_bytes()
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--resume", str(training.folder)]
    # In one process, because memory that processes share is a file too.
    command += ["--set", "checkpoint.every_minutes=0.01", "--set", "train.actors=0"]
    command += ["--steps", "1500"]
    done = subprocess.run(
        command,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        preexec_fn=file_size_limit(10_000),
    )
    assert done.returncode == 0, done.stderr
    assert "not saved (File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert good.read_bytes() == before
    assert find_checkpoint(training.folder)[0] == good
    assert not list(training.folder.rglob("*.tmp"))


@pytest.mark.parametrize("runs", ["/proc", "/dev/null/x"])
def test_a_folder_for_runs_that_can_not_be_written(tmp_path: Path, runs: str) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(SMALL)
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--config", str(config)]
    done = subprocess.run(
        [*command, "--runs", runs, "--name", "x"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"mario-train: {runs}/x: this folder can't be made (")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_on_a_disk_that_takes_nothing_is_one_line(tmp_path: Path) -> None:
    """As a read-only disk: resuming fails at the first file it must write."""
    training = Training(tmp_path)
    training.lines_until(100)
    training.process.send_signal(signal.SIGINT)
    assert training.end()[0] == 0
    command = [sys.executable, "-m", "mario_ddqn.train_cli", "--resume", str(training.folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, preexec_fn=file_size_limit(0)
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("mario-train: ")


def test_no_room_for_shared_memory_is_one_line(tmp_path: Path) -> None:
    training = Training(tmp_path, preexec_fn=file_size_limit(1_000_000))
    code, told = training.end()
    assert code == 2
    assert "no room for 0.03 GB of memory that processes share" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("name", ["x.mp4", "x.gif"])
def test_full_disk_while_filming(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "mario_ddqn.play_cli", "--checkpoint", str(PRETRAINED)]
    command += ["--out", str(tmp_path / name)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=file_size_limit(20_000),
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"{name}: the video can't be written on (File too large)" in done.stderr
    assert list(tmp_path.iterdir()) == []


FORMATS = sorted((Path(__file__).parent / "data").glob("format-*.chkpt"))


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.stem)
def test_every_format_there_ever_was_is_read(path: Path) -> None:
    assert load_policy(path).steps > 0


@pytest.mark.parametrize(
    "path", [path for path in FORMATS if "-" in path.stem[7:]], ids=lambda path: path.stem
)
def test_a_run_of_every_format_goes_on(tmp_path: Path, path: Path) -> None:
    """Of one process (in the middle of its episodes, on nes-py), and of an actor process."""
    before = load_checkpoint(path)
    shutil.copy(path, tmp_path / f"step-{before['steps']:012d}.chkpt")
    resume(tmp_path, [f"train.steps={before['steps'] + 150}"], lambda: False)
    after = find_checkpoint(tmp_path)[1]
    assert after["format"] == FORMAT
    assert after["steps"] >= before["steps"] + 50
    assert after["agent"]["updates"] > before["agent"]["updates"]


def test_broken_checkpoints_are_one_line(tmp_path: Path) -> None:
    """A thousand damaged files and some hostile ones: never a traceback, never anything run."""
    source = FORMATS[-1].read_bytes()
    generator = random.Random(1)
    path = tmp_path / "x.chkpt"
    refused = 0
    for number in range(1000):
        data = bytearray(source)
        kind = number % 4
        if kind == 0:
            data = data[: generator.randrange(len(data))]
        elif kind == 1:
            for _ in range(generator.randrange(1, 20)):
                data[generator.randrange(len(data))] = generator.randrange(256)
        elif kind == 2:
            at = generator.randrange(len(data))
            data[at : at + generator.randrange(2000)] = b""
        else:
            data = bytearray(generator.randbytes(generator.randrange(3000)))
        path.write_bytes(bytes(data))
        try:
            load_policy(path)
        except UserError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
    assert refused > 900


def test_zip_bomb_is_refused_unopened(tmp_path: Path) -> None:
    path = tmp_path / "bomb.chkpt"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w", force_zip64=True) as entry,
    ):
        block = bytes(10_000_000)
        for _ in range(450):
            entry.write(block)
    assert path.stat().st_size < 10_000_000
    with pytest.raises(UserError, match="unpacks to more than"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "damage", ["shape", "nan", "config", "steps", "agent", "optimizer-missing"]
)
def test_well_formed_files_with_wrong_content(tmp_path: Path, damage: str) -> None:
    content = load_checkpoint(FORMATS[-1])
    model = content["agent"]["average"]  # what is played with
    key = next(iter(model))
    if damage == "shape":
        model[key] = torch.zeros(3, 3)
    elif damage == "nan":
        model[key] = torch.full_like(model[key], float("nan"))
    elif damage == "config":
        content["config"] = "env: {stage: 99}"
    elif damage == "steps":
        content["steps"] = "many"
    elif damage == "agent":
        content["agent"] = [1, 2]
    else:
        content["agent"] = {"model": {}}
    path = tmp_path / "x.chkpt"
    torch.save(content, path)
    with pytest.raises(UserError) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)


def test_thousand_mutations_of_a_configuration_are_one_line() -> None:
    source = (ROOT / "configs" / "ddqn.yaml").read_text()
    generator = random.Random(2)
    pieces = ["!!python/object:os.system", "&a [*a, *a]", "*x", "\t", ": :", "{", "]", "\0"]
    pieces += ["1e999", ".inf", "-.nan", "- ", "? ", "|", ">", "%", "@", "`", "null", "9" * 30]
    refused = 0
    for _ in range(1000):
        text = source
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(text))
            piece = generator.choice(pieces)
            text = text[:at] + piece + text[at + generator.randrange(8) :]
        try:
            parse_config(text, "x.yaml")
        except UserError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
    assert refused > 300


def test_soak_in_short(tmp_path: Path) -> None:
    """Some hundred thousand transitions, then every kind of ending: nothing is left of any."""
    figures = tmp_path / "soak.json"
    command = [sys.executable, ROOT / "scripts" / "soak.py", "--json", figures]
    # The memory is still growing into its size then: the exit code is not looked at.
    done = subprocess.run(
        [*command, "--transitions", "400000"], capture_output=True, text=True, timeout=600
    )
    leaks = json.loads(figures.read_text())["leaks"]
    assert len(leaks) == 9, done.stderr
    assert not any(leaks.values()), leaks
