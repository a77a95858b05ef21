"""Checkpoints: whole or not at all, and nothing in them is ever run."""

from __future__ import annotations

import os
import pickle
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from mario_ddqn.checkpoint import (
    BEST,
    Checkpointer,
    find_checkpoint,
    load_checkpoint,
    write_checkpoint,
)
from mario_ddqn.errors import UserError
from mario_ddqn.frames import RamFrames
from mario_ddqn.rings import Rings


def payload(**changes) -> dict:
    content = {
        "version": "0",
        "config": "seed: 1\n",
        "agent": {"model": {"weight": torch.arange(5000.0)}},
        "steps": 7,
        "episodes": 2,
        "exploration_rate": 0.5,
        "collector": {"frames": [np.arange(5, dtype=np.uint8)], "text": "x", "none": None},
    }
    return {**content, **changes}


def ram(rings: Rings) -> RamFrames:
    return RamFrames(rings, torch.device("cpu"))


def checkpointer(folder: Path, **options) -> tuple[Checkpointer, list[str]]:
    messages: list[str] = []
    rings = Rings(1, 100, (4, 4))
    settings = {
        "keep": 3,
        "rings": rings,
        "frames": ram(rings),
        "save_replay": True,
        "report": messages.append,
    }
    return Checkpointer(folder, **{**settings, **options}), messages


def saved(folder: Path, **changes) -> Path:
    writer, messages = checkpointer(folder)
    writer.save(payload(**changes), steps=7, wait=True)
    assert messages == []
    return folder / "step-000000000007.chkpt"


def test_round_trip(tmp_path: Path) -> None:
    content = load_checkpoint(saved(tmp_path))
    assert content["steps"] == 7
    assert torch.equal(content["agent"]["model"]["weight"], torch.arange(5000.0))
    assert np.asarray(content["collector"]["frames"][0]).tolist() == [0, 1, 2, 3, 4]
    assert content["collector"]["none"] is None


def test_a_snapshot_is_of_the_moment_of_the_call(tmp_path: Path) -> None:
    writer, _ = checkpointer(tmp_path)
    weight = torch.zeros(3)
    writer.save(payload(agent={"model": {"weight": weight}}), steps=1)
    weight += 1
    writer.save(payload(), steps=2, name=BEST, wait=True)
    content = load_checkpoint(tmp_path / "step-000000000001.chkpt")
    assert content["agent"]["model"]["weight"].tolist() == [0, 0, 0]


def test_the_newest_few_are_kept_and_named_ones_besides(tmp_path: Path) -> None:
    writer, _ = checkpointer(tmp_path, keep=2)
    writer.save(payload(), steps=1, name=BEST, wait=True)
    for steps in range(1, 6):
        writer.save(payload(steps=steps), steps=steps, wait=True)
    names = sorted(path.name for path in tmp_path.glob("*.chkpt"))
    assert names == ["best.chkpt", "step-000000000004.chkpt", "step-000000000005.chkpt"]
    assert find_checkpoint(tmp_path)[1]["steps"] == 5
    assert find_checkpoint(tmp_path, prefer_best=True)[0].name == BEST


def test_a_folder_gives_its_newest_good_one(tmp_path: Path) -> None:
    writer, _ = checkpointer(tmp_path)
    for steps in (1, 2, 3):
        writer.save(payload(steps=steps), steps=steps, wait=True)
    newest = tmp_path / "step-000000000003.chkpt"
    newest.write_bytes(newest.read_bytes()[:1000])
    path, content, passed_over = find_checkpoint(tmp_path)
    assert (path.name, content["steps"]) == ("step-000000000002.chkpt", 2)
    assert len(passed_over) == 1
    assert "step-000000000003.chkpt" in passed_over[0]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "replay").mkdir()
    for name in ("step-000000000009.chkpt.tmp", "replay/lane.segment.tmp"):
        (tmp_path / name).write_bytes(b"half")
    checkpointer(tmp_path)
    assert list(tmp_path.rglob("*.tmp")) == []


class Malicious:
    """Unpickling it would run a command."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self._marker}",)


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name, write in {
        "torch.chkpt": lambda path: torch.save({"format": 1, "x": Malicious(marker)}, path),
        "plain.chkpt": lambda path: path.write_bytes(pickle.dumps(Malicious(marker))),
    }.items():
        path = tmp_path / name
        write(path)
        with pytest.raises(UserError, match=r"damaged, or no checkpoint"):
            load_checkpoint(path)
    assert not marker.exists()


def test_foreign_files(tmp_path: Path) -> None:
    def zipped(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")

    writers = {
        "empty": lambda path: path.write_bytes(b""),
        "text": lambda path: path.write_text("hello\n" * 100),
        "zip": zipped,
        "tensor": lambda path: torch.save(torch.zeros(3), path),
        "dict": lambda path: torch.save({"a": 1}, path),
        "list": lambda path: torch.save([1, 2], path),
    }
    for name, write in writers.items():
        path = tmp_path / name
        write(path)
        with pytest.raises(UserError) as caught:
            load_checkpoint(path)
        assert str(path) in str(caught.value)
        assert "no checkpoint of mario-train" in str(caught.value)
    for path, message in [(tmp_path, "folder"), (tmp_path / "none", "No such file")]:
        with pytest.raises(UserError, match=message):
            load_checkpoint(path)
    with pytest.raises(UserError, match="no readable checkpoint"):
        find_checkpoint(tmp_path)


def test_cut_off_anywhere_it_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    for length in range(0, len(data), 1024):
        path.write_bytes(data[:length])
        with pytest.raises(UserError):
            load_checkpoint(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match="damaged"):
        load_checkpoint(path)


def test_a_newer_format_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "new.chkpt"
    torch.save({**payload(collector={}), "format": 99}, path)
    with pytest.raises(UserError, match="update mario-train"):
        load_checkpoint(path)


def test_a_slow_disk_never_holds_the_training_up(tmp_path: Path) -> None:
    """The first file is a pipe that nobody reads: its save takes until we do."""
    folder = tmp_path / "run"
    folder.mkdir()
    writer, _messages = checkpointer(folder, save_replay=False)
    pipe = folder / "step-000000000001.chkpt.tmp"
    os.mkfifo(pipe)
    writer.save(payload(steps=1), steps=1)
    assert writer.busy
    for steps in (2, 3):
        writer.save(payload(steps=steps), steps=steps, name=BEST)
    assert not (folder / BEST).exists()
    pipe.read_bytes()
    writer.save(payload(steps=4), steps=4, wait=True)
    # Of the two that waited for the same name, the newer one was written.
    assert load_checkpoint(folder / BEST)["steps"] == 3
    assert find_checkpoint(folder)[1]["steps"] == 4
    assert not writer.busy


def test_a_failing_disk_is_reported_and_the_last_good_one_stays(tmp_path: Path) -> None:
    writer, messages = checkpointer(tmp_path / "run")
    writer.save(payload(steps=1), steps=1, wait=True)
    # A folder in the place of the next file: writing fails, whoever we are.
    (tmp_path / "run" / "step-000000000002.chkpt.tmp").mkdir()
    writer.save(payload(steps=2), steps=2, wait=True)
    assert len(messages) == 1
    assert "step 2 not saved" in messages[0]
    assert find_checkpoint(tmp_path / "run")[1]["steps"] == 1
    writer.save(payload(steps=3), steps=3, wait=True)
    assert find_checkpoint(tmp_path / "run")[1]["steps"] == 3


# Of these torch, writing straight into the file, makes an OSError or a RuntimeError.
@pytest.mark.parametrize("weights", [3201, 3395, 12_707, 300_000])
def test_a_full_disk_is_told_as_such(tmp_path: Path, weights: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_checkpoint(tmp_path / "step.chkpt", {"model": torch.zeros(weights)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
