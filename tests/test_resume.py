"""A resumed run is the same run: bit by bit in single-process mode."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mario_ddqn.checkpoint import find_checkpoint
from mario_ddqn.config import Config
from mario_ddqn.config_file import parse_config
from mario_ddqn.errors import UserError
from mario_ddqn.run import resume, run_folder, start

pytestmark = pytest.mark.slow
SMALL = """
env: {stall_steps: 30, actions: [right+B, right+A+B, NOOP], noop_max: 8}
agent:
  network: {width: 0.125, hidden: 16, dueling: true}
  n_step: 3
  batch_size: 4
  sync_every: 20
exploration: {kind: ladder, repeat_max: 6}
replay: {maxlen: 2000, reserve_gb: 0}
train: {steps: 600, burn_in: 100, steps_per_update: 3, lanes: 2, actors: 0}
log: {every_seconds: 1000, tensorboard: false}
"""


def config(*overrides: str) -> Config:
    return parse_config(SMALL, "small.yaml", overrides)


def never() -> bool:
    return False


class StopAfter:
    """Asks to stop at the n-th question, as a Ctrl-C at that moment would."""

    def __init__(self, questions: int) -> None:
        self._left = questions

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def without_noise(state: torch.Tensor) -> torch.Tensor:
    """An emulator's state without the register that only white noise is made of."""
    state = state.clone()
    at = bytes(state.tolist()).find(b"NREG")
    if at >= 0:
        state[at + 8 : at + 10] = 0
    return state


def same(a, b, path: str = "") -> None:
    """Bit-identical but for the clock, and the noise generator of FCEUmm's sound."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            if key not in ("seconds", "config", "replay", "best_mean_x"):
                same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, torch.Tensor):
        if path.endswith("machine"):
            a, b = without_noise(a), without_noise(b)
        assert torch.equal(a, b), path
    else:
        assert a == b or (a != a and b != b), path


def test_same_seed_same_numbers(tmp_path: Path) -> None:
    for name in ("a", "b"):
        start(config(), tmp_path / name, never)
    start(config("seed=2"), tmp_path / "c", never)
    a, b, c = (find_checkpoint(tmp_path / name)[1] for name in "abc")
    same(a, b)
    with pytest.raises(AssertionError):
        same(a["agent"], c["agent"])


@pytest.mark.parametrize("half", [40, 151, 299])
def test_stopped_and_resumed_is_the_same_as_straight(tmp_path: Path, half: int) -> None:
    """In the middle of episodes, before and after the first update."""
    start(config(), tmp_path / "straight", never)
    start(config(), tmp_path / "broken", StopAfter(half))
    middle = find_checkpoint(tmp_path / "broken")[1]
    assert middle["steps"] == 2 * half
    assert (middle["agent"]["updates"] > 0) == (2 * half > 100)
    resume(tmp_path / "broken", [], never)
    straight, broken = (find_checkpoint(tmp_path / name)[1] for name in ("straight", "broken"))
    assert broken["steps"] == 600
    same(straight, broken)


def test_n_and_2n_steps(tmp_path: Path) -> None:
    start(config("train.steps=300"), tmp_path / "run", never)
    resume(tmp_path / "run", ["train.steps=600"], never)
    start(config(), tmp_path / "straight", never)
    same(find_checkpoint(tmp_path / "straight")[1], find_checkpoint(tmp_path / "run")[1])


def test_without_its_memory_a_run_goes_on_and_says_so(tmp_path: Path, capsys) -> None:
    start(config("replay.save=false", "train.steps=300"), tmp_path / "run", never)
    assert not (tmp_path / "run" / "replay").exists()
    resume(tmp_path / "run", ["train.steps=400"], never)
    assert "without memories" in capsys.readouterr().err
    assert find_checkpoint(tmp_path / "run")[1]["steps"] == 400


def test_a_named_checkpoint_can_be_gone_on_with(tmp_path: Path) -> None:
    start(config("train.steps=300"), tmp_path / "run", never)
    (newest,) = (tmp_path / "run").glob("step-*.chkpt")
    newest.rename(tmp_path / "run" / "best.chkpt")
    resume(tmp_path / "run" / "best.chkpt", ["train.steps=320"], never)
    assert find_checkpoint(tmp_path / "run")[1]["steps"] == 320


@pytest.mark.parametrize(
    "change", ["agent.network.hidden=17", "env.actions=simple", "train.lanes=1"]
)
def test_what_does_not_fit_is_told_in_one_line(tmp_path: Path, change: str) -> None:
    start(config("train.steps=120"), tmp_path / "run", never)
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.chkpt")}
    with pytest.raises(UserError, match="does not fit this configuration"):
        resume(tmp_path / "run", [change], never)
    assert {path: path.read_bytes() for path in (tmp_path / "run").glob("*.chkpt")} == before


def test_folders_are_never_taken_twice(tmp_path: Path) -> None:
    assert run_folder(tmp_path, config(), "ddqn") == tmp_path / "ddqn-1-1"
    (tmp_path / "ddqn-1-1").mkdir()
    assert run_folder(tmp_path, config(), "ddqn") == tmp_path / "ddqn-1-1-2"
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="exists; go on with --resume"):
        run_folder(tmp_path, config("name=mine"), "ddqn")


def test_too_much_memory_ends_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the largest that fits"):
        start(config(f"replay.maxlen={10**12}"), tmp_path / "run", never)
    assert not (tmp_path / "run").exists()
    assert np.iinfo(np.int64).max > 10**12


@pytest.mark.parametrize("actors", [0, 1])
def test_what_was_learned_last_is_evaluated(tmp_path: Path, actors: int) -> None:
    changes = [f"train.actors={actors}", "evaluation.every_minutes=1000", "evaluation.episodes=2"]
    start(config(*changes), tmp_path / "run", never)
    folder = tmp_path / "run"
    state = find_checkpoint(folder)[1]
    evaluations = (folder / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [state["steps"]]
    best, content, _ = find_checkpoint(folder, prefer_best=True)
    assert best.name == "best.chkpt"
    assert content["steps"] == state["steps"]

    # Nothing was learned since: there is nothing to play.
    resume(folder, [], never)
    assert (folder / "evaluations.jsonl").read_text().splitlines() == evaluations


def test_a_stop_does_not_wait_for_an_evaluation(tmp_path: Path) -> None:
    changes = ["evaluation.every_minutes=1000", "evaluation.episodes=2"]
    start(config(*changes), tmp_path / "run", StopAfter(200))
    assert find_checkpoint(tmp_path / "run")[1]["agent"]["updates"] > 0
    assert not (tmp_path / "run" / "evaluations.jsonl").exists()
