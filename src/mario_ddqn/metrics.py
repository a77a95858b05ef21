"""What a run leaves on the disk about itself: metrics.csv, TensorBoard scalars, flags.jsonl."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mario_ddqn.actor import Episode
from mario_ddqn.curves import Curves
from mario_ddqn.evaluate import Evaluation
from mario_ddqn.files import rewrite_lines

METRICS_FILE = "metrics.csv"
FLAGS_FILE = "flags.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
_WINDOW = 100


@dataclass(frozen=True)
class Row:
    """One row of metrics.csv. Means are over the last 100 episodes, exploration included."""

    step: int
    seconds: float
    episodes: int
    updates: int
    steps_per_second: float
    updates_per_second: float
    exploration_rate: float
    mean_reward: float
    mean_x: float
    best_x: int
    flags: int
    flag_share: float
    loss: float
    mean_q: float
    replay: int


# Names in TensorBoard, grouped.
_SCALARS = {
    "steps_per_second": "speed/steps_per_second",
    "updates_per_second": "speed/updates_per_second",
    "exploration_rate": "train/exploration_rate",
    "mean_reward": "episode/mean_reward",
    "mean_x": "episode/mean_x",
    "best_x": "episode/best_x",
    "flags": "episode/flags",
    "flag_share": "episode/flag_share",
    "loss": "train/loss",
    "mean_q": "train/mean_q",
    "replay": "train/replay",
}


class EpisodeStats:
    """Counts and recent means of a run's episodes."""

    def __init__(self) -> None:
        self.episodes = 0
        self.flags = 0
        self.best_x = 0
        self._recent: deque[tuple[float, int, bool]] = deque(maxlen=_WINDOW)

    def add(self, episode: Episode) -> None:
        """Takes an ended episode in."""
        self.episodes += 1
        self.flags += episode.flag
        self.best_x = max(self.best_x, episode.x)
        self._recent.append((episode.reward, episode.x, episode.flag))

    def means(self) -> tuple[float, float, float]:
        """(reward, x, share with a flag) over the last 100 episodes; zeros before the first."""
        count = len(self._recent) or 1
        rewards, xs, flags = zip(*self._recent, strict=True) if self._recent else ((), (), ())
        return sum(rewards) / count, sum(xs) / count, sum(flags) / count

    def get_state(self) -> dict[str, Any]:
        """Counts and recent episodes."""
        return {
            "episodes": self.episodes,
            "flags": self.flags,
            "best_x": self.best_x,
            "recent": [[reward, x, flag] for reward, x, flag in self._recent],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`."""
        self.episodes, self.flags = state["episodes"], state["flags"]
        self.best_x = state["best_x"]
        self._recent.clear()
        self._recent.extend((reward, x, flag) for reward, x, flag in state["recent"])


class Metrics:
    """Writes the files; a failing disk is reported once a failure, and never ends a run."""

    def __init__(
        self, folder: Path, *, start_step: int, tensorboard: bool, report: Callable[[str], None]
    ) -> None:
        """Rows after `start_step`, left by a run that was killed later than its last checkpoint,
        are taken out.
        """
        self._metrics = folder / METRICS_FILE
        self._flags = folder / FLAGS_FILE
        self._report = report
        self._failing: set[str] = set()
        self._fields = list(Row.__dataclass_fields__)
        rewrite_lines(self._metrics, lambda line: not _after(line.partition(",")[0], start_step))
        self._evaluations = folder / EVALUATIONS_FILE
        for file in (self._flags, self._evaluations):
            rewrite_lines(file, lambda line: not _after(_step_of(line), start_step))
        self._curves = (
            Curves(folder / "tensorboard", start_step=start_step) if tensorboard else None
        )

    def write(self, row: Row) -> None:
        """Appends to metrics.csv and TensorBoard."""
        values = asdict(row)
        self._try("metrics", lambda: self._append_row(values))
        self._add({scalar: values[key] for key, scalar in _SCALARS.items()}, row.step)

    def flag(self, episode: Episode, *, step: int, number: int, seconds: float) -> None:
        """Appends to flags.jsonl."""
        record = {
            "step": step,
            "episode": number,
            "seconds": round(seconds, 1),
            "world": episode.world,
            "stage": episode.stage,
            "time_left": episode.time,
            "steps_in_episode": episode.steps,
            "lane": episode.lane,
            "exploration_rate": episode.rate,
        }
        self._try("flags", lambda: _append(self._flags, json.dumps(record) + "\n"))

    def evaluation(self, result: Evaluation, *, step: int, seconds: float) -> None:
        """Appends to evaluations.jsonl and TensorBoard."""
        record = {"step": step, "seconds": round(seconds, 1), **asdict(result)}
        self._try("evaluations", lambda: _append(self._evaluations, json.dumps(record) + "\n"))
        scalars = {
            "evaluation/clear_rate": result.clear_rate,
            "evaluation/mean_x": result.mean_x,
        }
        self._add(scalars, step)

    def close(self) -> None:
        """Flushes TensorBoard."""
        if self._curves is not None:
            self._try("curves", self._curves.close)

    def _add(self, scalars: dict[str, float], step: int) -> None:
        curves = self._curves
        if curves is not None:
            self._try("curves", lambda: curves.add(scalars, step))

    def _append_row(self, values: dict[str, Any]) -> None:
        new = not self._metrics.exists()
        with open(self._metrics, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._fields)
            if new:
                writer.writeheader()
            writer.writerow(values)

    def _try(self, what: str, write: Callable[[], Any]) -> None:
        try:
            write()
            self._failing.discard(what)
        except OSError as error:
            if what not in self._failing:
                self._report(f"{what} not written ({error.strerror or error}); training goes on")
            self._failing.add(what)


def _append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def _after(step: str, start: int) -> bool:
    return step.isdigit() and int(step) > start


def _step_of(line: str) -> str:
    try:
        return str(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return ""
