"""What all tests share: which cores are here, and where torch is needed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
CORES = [
    name
    for name, package in (("fceumm", "stable_retro"), ("nes-py", "nes_py"))
    if importlib.util.find_spec(package)
]
if importlib.util.find_spec("torch") is not None:
    import torch

    # The tests' actor processes need the other cores.
    torch.set_num_threads(1)
else:
    # Without torch (the second run of .ci/run) game and configuration are tested.
    collect_ignore = [
        "test_agent.py",
        "test_actor.py",
        "test_augmentation.py",
        "test_checkpoint.py",
        "test_demonstrations.py",
        "test_end_to_end.py",
        "test_evaluate.py",
        "test_faults.py",
        "test_metrics.py",
        "test_pretrained.py",
        "test_replay.py",
        "test_replay_store.py",
        "test_resume.py",
        "test_sizing.py",
        "test_study.py",
        "test_threads.py",
        "test_workers.py",
    ]


@pytest.fixture(params=CORES)
def core_name(request: pytest.FixtureRequest) -> str:
    """Each core that is installed."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def paths() -> dict[str, dict]:
    """Ways to the flag, found by scripts/find_path.py on FCEUmm."""
    found: dict[str, dict] = json.loads((DATA / "paths.json").read_text())
    return found
