"""The replay memory on disk: exact, incremental, bounded, and robust against damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mario_ddqn.frames import Frames, GpuFrames, RamFrames
from mario_ddqn.replay_store import ReplayStore
from mario_ddqn.rings import FINAL, FIRST, Rings

SHAPE = (6, 6)
CAPACITY = 1024  # segments of 128 slots


def ram(rings: Rings) -> Frames:
    kind = RamFrames if rings.window == rings.capacity else GpuFrames
    return kind(rings, torch.device("cpu"))


def filled(steps: int, seed: int = 0, lanes: int = 2) -> Rings:
    rings = Rings(lanes, CAPACITY, SHAPE)
    more(rings, steps, seed)
    return rings


def more(rings: Rings, steps: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for lane in range(rings.lanes):
        if rings.heads[lane] == 0:
            rings.begin(lane, random.integers(0, 256, SHAPE, np.uint8))
        for _ in range(steps):
            over = random.random() < 0.02
            picture = random.integers(0, 256, SHAPE, np.uint8)
            rings.add(lane, 1, random.random(), picture, terminated=over, truncated=False)
            if over:
                rings.begin(lane, random.integers(0, 256, SHAPE, np.uint8))


def same(a: Rings, b: Rings) -> None:
    assert a.heads.tolist() == b.heads.tolist()
    for lane in range(a.lanes):
        head, low = int(a.heads[lane]), int(b.floors[lane])
        assert low <= max(0, head + 2 - CAPACITY)
        slots = np.arange(max(low, head + 2 - CAPACITY), head + 1) % CAPACITY
        for column in ("frames", "flags"):
            assert np.array_equal(getattr(a, column)[lane, slots], getattr(b, column)[lane, slots])
        for column in ("actions", "rewards"):
            mine, theirs = getattr(a, column)[lane, slots], getattr(b, column)[lane, slots]
            assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("steps", [0, 1, 127, 128, 129, 900, 1024, 1500, 5000])
def test_round_trip(tmp_path: Path, steps: int) -> None:
    rings = filled(steps)
    store = ReplayStore(tmp_path)
    manifest = store.save(rings, ram(rings), rings.heads.copy())
    again = Rings(2, CAPACITY, SHAPE)
    restored = ReplayStore(tmp_path).load(again, ram(again), manifest)
    assert restored.problem is None
    same(rings, again)


def test_a_save_writes_only_what_is_new(tmp_path: Path) -> None:
    rings = filled(800)
    store = ReplayStore(tmp_path)
    store.save(rings, ram(rings), rings.heads.copy())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    more(rings, 100, 1)
    manifest = store.save(rings, ram(rings), rings.heads.copy())
    touched = [
        path.name for path in tmp_path.iterdir() if before.get(path.name) != path.stat().st_mtime_ns
    ]
    # A finished segment at most and the unfinished one, in each lane.
    assert 2 <= len(touched) <= 4
    again = Rings(2, CAPACITY, SHAPE)
    store.load(again, ram(again), manifest)
    same(rings, again)


def test_disk_use_stays_bounded(tmp_path: Path) -> None:
    rings = filled(100)
    store = ReplayStore(tmp_path)
    manifests: list[dict] = []
    for round_number in range(40):
        more(rings, 150, round_number)
        manifests = [*manifests[-1:], store.save(rings, ram(rings), rings.heads.copy())]
        store.prune(manifests)
        assert len(list(tmp_path.iterdir())) <= 2 * (CAPACITY // 128 + 4)
    for manifest in manifests:
        again = Rings(2, CAPACITY, SHAPE)
        assert store.load(again, ram(again), manifest).problem is None


def test_slots_written_after_the_save_are_not_in_it(tmp_path: Path) -> None:
    rings = filled(300)
    heads = rings.heads.copy()
    expected = Rings(2, CAPACITY, SHAPE)
    for column in ("frames", "actions", "rewards", "flags", "heads"):
        getattr(expected, column)[:] = getattr(rings, column)
    more(rings, 10, 3)
    manifest = ReplayStore(tmp_path).save(rings, ram(rings), heads)
    again = Rings(2, CAPACITY, SHAPE)
    ReplayStore(tmp_path).load(again, ram(again), manifest)
    assert again.heads.tolist() == heads.tolist()
    slots = np.arange(int(heads[0]))
    assert np.array_equal(again.frames[0, slots], expected.frames[0, slots])


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty", "text", "header"])
def test_after_damage_only_newer_memories_come_back(tmp_path: Path, damage: str) -> None:
    rings = filled(900, lanes=1)
    store = ReplayStore(tmp_path)
    manifest = store.save(rings, ram(rings), rings.heads.copy())
    victim = tmp_path / manifest["lanes"][0]["files"][3]
    data = victim.read_bytes()
    if damage == "gone":
        victim.unlink()
    else:
        changed = {
            "cut": data[: len(data) // 2],
            "flip": data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
            "empty": b"",
            "text": b"hello",
            "header": data[:20] + b"\xff" * 20 + data[40:],
        }
        victim.write_bytes(changed[damage])
    again = Rings(1, CAPACITY, SHAPE)
    restored = store.load(again, ram(again), manifest)
    assert restored.problem is not None
    assert again.floors[0] == 4 * 128
    assert again.heads[0] == rings.heads[0]
    slots = np.arange(4 * 128, int(rings.heads[0]))
    assert np.array_equal(again.frames[0, slots], rings.frames[0, slots])


def test_other_pictures_are_refused(tmp_path: Path) -> None:
    rings = filled(200)
    manifest = ReplayStore(tmp_path).save(rings, ram(rings), rings.heads.copy())
    other = Rings(2, CAPACITY, (7, 7))
    problem = ReplayStore(tmp_path).load(other, ram(other), manifest).problem
    assert "another size" in (problem or "")
    assert other.heads.tolist() == [0, 0]


@pytest.mark.parametrize("lanes", [1, 3, 5])
def test_other_lanes_get_the_memories_dealt_out(tmp_path: Path, lanes: int) -> None:
    """On a machine with more or fewer cores every transition is still there, but once."""
    rings = filled(300)
    manifest = ReplayStore(tmp_path).save(rings, ram(rings), rings.heads.copy())
    other = Rings(lanes, CAPACITY, SHAPE)
    assert ReplayStore(tmp_path).load(other, ram(other), manifest).problem is None

    def transitions(source: Rings) -> list[tuple[bytes, float]]:
        slots = [(lane, n) for lane in range(source.lanes) for n in range(source.heads[lane])]
        return sorted(
            (source.frames[at].tobytes(), float(source.rewards[at]))
            for at in slots
            if not source.flags[at] & FINAL
        )

    assert transitions(other) == transitions(rings)
    for lane in range(min(lanes, 2)):
        assert other.flags[lane, 0] & FIRST
        assert other.flags[lane, other.heads[lane] - 1] & FINAL


def test_a_larger_and_a_smaller_memory_take_what_fits(tmp_path: Path) -> None:
    rings = filled(900)
    manifest = ReplayStore(tmp_path).save(rings, ram(rings), rings.heads.copy())
    for capacity in (512, 4096):
        other = Rings(2, capacity, SHAPE)
        assert ReplayStore(tmp_path).load(other, ram(other), manifest).problem is None
        head = int(rings.heads[0])
        slots = np.arange(max(0, head + 2 - capacity), head)
        assert np.array_equal(other.frames[0, slots % capacity], rings.frames[0, slots % CAPACITY])


def test_a_manifest_can_not_point_outside_its_folder(tmp_path: Path) -> None:
    rings = filled(100, lanes=1)
    inside = tmp_path / "run" / "replay"
    manifest = ReplayStore(tmp_path / "elsewhere").save(rings, ram(rings), rings.heads.copy())
    name = manifest["lanes"][0]["files"][0]
    manifest["lanes"][0]["files"] = [f"../../elsewhere/{name}"]
    again = Rings(1, CAPACITY, SHAPE)
    assert ReplayStore(inside).load(again, ram(again), manifest).problem is not None


def test_frames_on_a_device_of_their_own(tmp_path: Path) -> None:
    """GpuFrames, with the CPU as the device: saved from there, and brought back to there."""
    plain = filled(1500)
    windowed = Rings(2, CAPACITY, SHAPE, window=64)
    frames = ram(windowed)
    for _ in range(30):
        more(windowed, 50, 0)
        frames.refresh()
    manifest = ReplayStore(tmp_path / "plain").save(plain, ram(plain), plain.heads.copy())
    again = Rings(2, CAPACITY, SHAPE, window=64)
    store_frames = ram(again)
    assert ReplayStore(tmp_path / "plain").load(again, store_frames, manifest).problem is None
    head = int(plain.heads[0])
    slots = np.arange(head + 2 - CAPACITY, head + 1)
    assert np.array_equal(store_frames.read(0, slots), plain.frames[0, slots % CAPACITY])
    # The window has the newest, which a lane goes on from.
    assert np.array_equal(again.frames[0, head % 64], plain.frames[0, head % CAPACITY])
    second = ReplayStore(tmp_path / "gpu").save(windowed, frames, windowed.heads.copy())
    back = Rings(2, CAPACITY, SHAPE)
    assert ReplayStore(tmp_path / "gpu").load(back, ram(back), second).problem is None
    head = int(windowed.heads[1])
    slots = np.arange(head + 2 - CAPACITY, head + 1)
    assert np.array_equal(back.frames[1, slots % CAPACITY], frames.read(1, slots))
