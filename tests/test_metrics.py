"""metrics.csv, flags.jsonl, TensorBoard, and what the terminal shows."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mario_ddqn.actor import Episode
from mario_ddqn.display import Display
from mario_ddqn.metrics import EpisodeStats, Metrics, Row

FLAG = Episode(
    lane=3,
    steps=300,
    reward=150.0,
    x=3161,
    progress=3121,
    world=1,
    stage=1,
    time=312,
    flag=True,
    death=False,
    truncated=False,
    rate=0.05,
    from_start=True,
)
DEATH = Episode(
    lane=0,
    steps=40,
    reward=10.0,
    x=300,
    progress=260,
    world=1,
    stage=1,
    time=390,
    flag=False,
    death=True,
    truncated=False,
    rate=0.4,
    from_start=True,
)


def row(step: int) -> Row:
    return Row(step, 1.5, 10, 20, 100.0, 25.0, 0.4, 12.3, 456.0, 789, 1, 0.1, 0.01, 3.2, 5000)


def read(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().splitlines()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_stats_by_hand() -> None:
    stats = EpisodeStats()
    assert stats.means() == (0, 0, 0)
    for episode in (DEATH, DEATH, FLAG, DEATH):
        stats.add(episode)
    assert (stats.episodes, stats.flags, stats.best_x) == (4, 1, 3161)
    assert stats.means() == ((3 * 10 + 150) / 4, (3 * 300 + 3161) / 4, 0.25)
    for _ in range(100):
        stats.add(DEATH)
    assert stats.means() == (10, 300, 0)
    again = EpisodeStats()
    again.set_state(stats.get_state())
    assert again.get_state() == stats.get_state()


def test_files(tmp_path: Path) -> None:
    messages: list[str] = []
    metrics = Metrics(tmp_path, start_step=0, tensorboard=True, report=messages.append)
    for step in (100, 200):
        metrics.write(row(step))
    metrics.flag(FLAG, step=150, number=7, seconds=3.21)
    metrics.close()
    rows = list(csv.DictReader(read(tmp_path, "metrics.csv")))
    assert [entry["step"] for entry in rows] == ["100", "200"]
    assert rows[0]["mean_x"] == "456.0"
    (flag,) = [json.loads(line) for line in read(tmp_path, "flags.jsonl")]
    assert (flag["step"], flag["episode"], flag["time_left"], flag["world"]) == (150, 7, 312, 1)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = [(event.step, event.value) for event in events.Scalars("episode/best_x")]
    assert scalars == [(100, 789.0), (200, 789.0)]
    assert messages == []


def test_a_resumed_run_drops_what_was_written_after_its_checkpoint(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, start_step=0, tensorboard=False, report=print)
    for step in (100, 200, 300):
        metrics.write(row(step))
        metrics.flag(FLAG, step=step, number=1, seconds=1)
    metrics = Metrics(tmp_path, start_step=200, tensorboard=False, report=print)
    metrics.write(row(250))
    steps = [entry["step"] for entry in csv.DictReader(read(tmp_path, "metrics.csv"))]
    assert steps == ["100", "200", "250"]
    flags = [json.loads(line)["step"] for line in read(tmp_path, "flags.jsonl")]
    assert flags == [100, 200]


def test_a_failing_disk_is_told_once(tmp_path: Path) -> None:
    messages: list[str] = []
    metrics = Metrics(tmp_path, start_step=0, tensorboard=False, report=messages.append)
    (tmp_path / "metrics.csv").mkdir()
    metrics.write(row(1))
    metrics.write(row(2))
    assert len(messages) == 1
    (tmp_path / "metrics.csv").rmdir()
    metrics.write(row(3))
    assert len(list(csv.DictReader(read(tmp_path, "metrics.csv")))) == 1


def test_curves_go_on_after_their_disk_has_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard's thread dies of it: told once, without a traceback, and a new one is begun."""
    messages: list[str] = []
    metrics = Metrics(tmp_path, start_step=0, tensorboard=True, report=messages.append)
    metrics.write(row(1))
    folder = tmp_path / "tensorboard"
    folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    step = 2
    deadline = time.monotonic() + 30
    while not messages or step < 100:
        assert time.monotonic() < deadline
        metrics.write(row(step))
        step += 1
    assert len(messages) == 1
    assert messages[0].startswith("curves not written (")
    folder.unlink()
    metrics.write(row(step))
    metrics.close()
    events = EventAccumulator(str(folder))
    events.Reload()
    assert [event.step for event in events.Scalars("episode/best_x")][-1] == step
    assert len(list(csv.DictReader(read(tmp_path, "metrics.csv")))) == step
    assert "Traceback" not in capfd.readouterr().err


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    display = Display(total=1000, start=0, stream=stream)
    display.step(10)
    display.row(row(500))
    display.flag(FLAG, step=600, number=42)
    display.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    for part in ("500/1,000", "100 steps/s", "episode 10", "epsilon 0.400", "best 789", "left"):
        assert part in lines[0]
    for part in ("FLAG", "stage 1-1", "episode 42", "step 600", "312 ticks left"):
        assert part in lines[1]
    assert "\033" not in stream.getvalue()


def test_a_bar_in_a_terminal() -> None:
    stream = Terminal()
    display = Display(total=1000, start=100, stream=stream)
    display.row(row(500))
    display.step(500)
    display.flag(FLAG, step=600, number=42)
    display.close()
    text = stream.getvalue()
    assert "500/1.00k" in text
    assert "clears 1" in text
    assert "FLAG" in text
