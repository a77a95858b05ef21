"""What the terminal shows while Mario learns: a bar, or plain lines where none fits."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

from tqdm import tqdm

from mario_ddqn.actor import Episode
from mario_ddqn.evaluate import Evaluation
from mario_ddqn.metrics import Row


class Display:
    """Progress on standard error: a bar in a terminal, else one line a row of metrics.

    A terminal that is closed, or a pipe nobody reads, does not end a training.
    """

    def __init__(self, *, total: int, start: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = total
        self._start = start
        self._began = time.monotonic()
        self._bar: tqdm | None = None
        if self._stream.isatty():
            self._bar = tqdm(
                total=total,
                initial=start,
                unit=" steps",
                file=self._stream,
                dynamic_ncols=True,
                smoothing=0.1,
                bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} "
                "[{rate_fmt}, {remaining} left{postfix}]",
                unit_scale=True,
            )

    def step(self, step: int) -> None:
        """Moves the bar; cheap enough for every iteration."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.update(step - self._bar.n)

    def row(self, row: Row) -> None:
        """Shows the newest metrics."""
        if self._bar is not None:
            self._bar.set_postfix_str(
                f"episode {row.episodes}, epsilon {row.exploration_rate:.3f}, "
                f"return {row.mean_reward:.1f}, x {row.mean_x:.0f}, best {row.best_x}, "
                f"clears {row.flags}",
                refresh=False,
            )
            return
        self.line(
            f"step {row.step:,}/{self._total:,}  {row.steps_per_second:.0f} steps/s  "
            f"episode {row.episodes}  epsilon {row.exploration_rate:.3f}  "
            f"return {row.mean_reward:.1f}  x {row.mean_x:.0f}  best {row.best_x}  "
            f"clears {row.flags}  {self._left(row.step)} left"
        )

    def flag(self, episode: Episode, *, step: int, number: int) -> None:
        """The line nobody can miss."""
        stage = f"{episode.world}-{episode.stage}"
        text = (
            f"*** FLAG! *** stage {stage}, episode {number:,}, step {step:,}, "
            f"{episode.time} ticks left, exploration rate {episode.rate:.3f}"
        )
        self.line(f"\033[1;30;43m {text} \033[0m" if self._stream.isatty() else text)

    def evaluation(self, result: Evaluation) -> None:
        """What greedy play from the stage's start came to."""
        self.line(
            f"evaluation: {result.clear_rate:.0%} of {result.episodes} greedy episodes clear the "
            f"stage, mean x {result.mean_x:.0f}"
        )

    def line(self, text: str) -> None:
        """A line of its own, above the bar."""
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()

    def _left(self, step: int) -> str:
        done = step - self._start
        seconds = (time.monotonic() - self._began) * (self._total - step) / done if done else 0
        return str(tqdm.format_interval(seconds))
