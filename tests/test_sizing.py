"""Memory-aware sizing, with the machine's figures stubbed: no machine has all these limits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mario_ddqn import sizing
from mario_ddqn.config import ReplayConfig
from mario_ddqn.errors import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
GB = 1_000_000_000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Sets free RAM, free GPU memory and cgroup files."""

    def set_memory(ram_gb: float, gpu_gb: float = 0, cgroup: dict[str, str] | None = None) -> None:
        memory = SimpleNamespace(available=int(ram_gb * GB))
        monkeypatch.setattr(sizing.psutil, "virtual_memory", lambda: memory)
        monkeypatch.setattr(
            sizing.torch.cuda, "mem_get_info", lambda _device: (int(gpu_gb * GB), 80 * GB)
        )
        monkeypatch.setattr(sizing, "_CGROUP_ROOT", tmp_path)
        monkeypatch.setattr(sizing, "_own_cgroup", lambda: tmp_path / "job" / "step")
        (tmp_path / "job" / "step").mkdir(parents=True, exist_ok=True)
        (tmp_path / "memory").mkdir(exist_ok=True)
        for name, text in (cgroup or {}).items():
            (tmp_path / name).write_text(text)

    return set_memory


def test_a_number_that_fits_is_taken(machine) -> None:
    machine(ram_gb=16)
    plan = sizing.plan_replay(ReplayConfig(maxlen=100_000), size=84, device=CPU)
    assert (plan.maxlen, plan.device, plan.size_bytes) == (100_000, "cpu", 706_200_000)


def test_a_number_that_does_not_fit_ends_with_all_figures(machine) -> None:
    machine(ram_gb=4)
    with pytest.raises(UserError) as caught:
        sizing.plan_replay(ReplayConfig(maxlen=1_000_000), size=84, device=CPU)
    text = str(caught.value)
    assert "1,000,000 transitions need 7,062,000,000 bytes of RAM" in text
    assert f"the largest that fits is {2 * GB // 7062:,}" in text
    assert "if_too_big: shrink" in text
    assert "\n" not in text


def test_shrink_takes_what_fits(machine) -> None:
    machine(ram_gb=4)
    config = ReplayConfig(maxlen=1_000_000, if_too_big="shrink", reserve_gb=1)
    assert sizing.plan_replay(config, size=84, device=CPU).maxlen == 3 * GB // 7062


def test_auto_leaves_the_reserve(machine) -> None:
    machine(ram_gb=10)
    config = ReplayConfig(maxlen="auto", reserve_gb=2)
    assert sizing.plan_replay(config, size=84, device=CPU).maxlen == 8 * GB // 7062


def test_too_little_memory_for_anything(machine) -> None:
    machine(ram_gb=2)
    with pytest.raises(UserError, match="too few"):
        sizing.plan_replay(ReplayConfig(maxlen="auto"), size=84, device=CPU)
    machine(ram_gb=100)
    with pytest.raises(UserError, match="32 lanes are too few"):
        sizing.plan_replay(ReplayConfig(maxlen=10_000), size=84, device=CPU, lanes=32)


def test_gpu_memory_is_asked_where_the_run_is_on_a_gpu(machine) -> None:
    machine(ram_gb=64, gpu_gb=12)
    config = ReplayConfig(maxlen="auto", reserve_gb=2)
    plan = sizing.plan_replay(config, size=84, device=GPU)
    assert (plan.device, plan.maxlen) == ("cuda", 10 * GB // 7062)
    # All of it or nothing: what does not fit there lies in RAM.
    machine(ram_gb=64, gpu_gb=3)
    plan = sizing.plan_replay(ReplayConfig(maxlen=1_000_000), size=84, device=GPU)
    assert plan.device == "cpu"
    with pytest.raises(UserError, match="bytes of GPU memory"):
        sizing.plan_replay(ReplayConfig(maxlen=1_000_000, device="cuda"), size=84, device=GPU)


def test_replay_on_the_gpu_needs_a_gpu(machine) -> None:
    machine(ram_gb=64)
    with pytest.raises(UserError, match="set it to auto or cpu"):
        sizing.plan_replay(ReplayConfig(device="cuda"), size=84, device=CPU)


def test_a_containers_limit_is_the_real_memory(machine) -> None:
    machine(
        ram_gb=64,
        cgroup={
            "job/step/memory.max": "max",
            "job/memory.max": str(5 * GB),
            "job/memory.current": str(3 * GB),
            "job/memory.stat": f"anon 1\ninactive_file {GB}\n",
            "job/step/memory.current": "1",
        },
    )
    assert sizing.free_ram() == 3 * GB


def test_an_old_containers_limit_too(machine) -> None:
    machine(
        ram_gb=64,
        cgroup={
            "memory/memory.limit_in_bytes": str(6 * GB),
            "memory/memory.usage_in_bytes": str(GB),
            "memory/memory.stat": f"total_inactive_file {GB // 2}\n",
        },
    )
    assert sizing.free_ram() == 5 * GB + GB // 2


def test_no_limit_in_a_container(machine) -> None:
    machine(
        ram_gb=64,
        cgroup={
            "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
            "memory/memory.usage_in_bytes": "0",
            "job/memory.max": "max",
        },
    )
    assert sizing.free_ram() == 64 * GB


def test_this_machine_has_memory() -> None:
    assert 0 < sizing.free_ram() < 10**14
