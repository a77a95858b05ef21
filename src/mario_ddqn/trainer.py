"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from mario_ddqn.actor import Episode
from mario_ddqn.agent import DDQNAgent
from mario_ddqn.checkpoint import BEST, FIRST_FLAG, Checkpointer, detached
from mario_ddqn.collect import Collector
from mario_ddqn.config import Config
from mario_ddqn.config_file import dump_config
from mario_ddqn.demonstrations import WithDemonstrations
from mario_ddqn.display import Display
from mario_ddqn.evaluate import Evaluation
from mario_ddqn.exploration import exploration_rate
from mario_ddqn.frames import GPU_WINDOW
from mario_ddqn.metrics import EpisodeStats, Metrics, Row
from mario_ddqn.profile import ACTOR_PARTS, LEARNER_PARTS, Profile, profile_lines
from mario_ddqn.replay import ReplayMemory
from mario_ddqn.threads import LearnerThreads

# A best checkpoint is one whose last 100 episodes went so much further.
_BETTER_BY = 1.02
_BEST_AFTER_EPISODES = 20
# Actors in their own processes may be so many updates' worth of steps ahead.
_LEAD_UPDATES = 16
_MOST_UPDATES_AT_ONCE = 16
# The learner, with nothing to do, looks again after so long; an update takes 10 ms.
_PAUSE_SECONDS = 0.0005


class Trainer:
    """Collect, learn, report, save, until the steps are done or a stop is requested."""

    def __init__(
        self,
        config: Config,
        *,
        version: str,
        agent: DDQNAgent,
        collector: Collector,
        replay: ReplayMemory | WithDemonstrations,
        checkpointer: Checkpointer,
        metrics: Metrics,
        display: Display,
        threads: LearnerThreads | None,
        stop_requested: Callable[[], bool],
    ) -> None:
        self.config = config
        self.steps = 0
        self.stats = EpisodeStats()
        self._version = version
        self._agent = agent
        self._collector = collector
        self._replay = replay
        self._checkpointer = checkpointer
        self._metrics = metrics
        self._display = display
        self._threads = threads
        self._stop_requested = stop_requested
        # A memory that came back from a checkpoint counts, an empty one is filled anew.
        self._burn_in = min(config.train.burn_in, replay.capacity // 2)
        self._learning = False
        self._updates_due = 0.0
        self._best_mean_x = 0.0
        self._best: Evaluation | None = None
        self._candidate: dict[str, Any] | None = None
        self._loss_sum = self._q_sum = 0.0
        self._seconds_before = 0.0
        self._began = self._row_at = self._saved_at = self._evaluated_at = time.monotonic()
        self._row_steps = self._row_updates = self._saved_steps = 0
        self._evaluated_updates = 0
        self._profile = Profile(LEARNER_PARTS)

    def count_in(self, steps: int, seconds: float) -> None:
        """What was done before the first step of training counts as part of the run."""
        self.steps += steps
        self._seconds_before += seconds

    def run(self) -> None:
        """Trains; whatever ends it, the last thing is a checkpoint."""
        self._begin_clocks()
        while not (self._is_spent() or self._is_enough()):
            self._collect_and_learn(self._step_limit())
            if self._evaluation_is_due():
                self._ask_for_evaluation()
            self._display.step(self.steps)
            if time.monotonic() - self._row_at >= self.config.log.every_seconds:
                self._report()
            if self._save_is_due():
                self.save()
            self._profile.book("rest")
        self._evaluate_last()
        self._report()
        self.save(wait=True)
        if self.config.log.profile:
            self._show_profile()

    def _collect_and_learn(self, limit: float) -> None:
        collected = self._collector.collect(self.steps, limit)
        self._profile.book("collect")
        self.steps += collected.steps
        for episode in collected.episodes:
            self._record(episode)
        self._learn(collected.steps)
        if collected.evaluation is not None:
            self._take_evaluation(collected.evaluation)

    def _step_limit(self) -> float:
        """How far the actors may go before the learner has caught up."""
        # No lane may outrun the frames' window, even if one actor makes all the steps.
        lead: float = self.config.train.lanes * GPU_WINDOW // 4
        if self._learning:
            updates = _LEAD_UPDATES - self._updates_due
            lead = min(lead, updates * self.config.train.steps_per_update)
        return min(self.config.train.steps, self.steps + lead)

    def _learn(self, new_steps: int) -> None:
        """The updates that are due; the ratio to the steps does not depend on the machine."""
        if self._learning:
            self._updates_due += new_steps / self.config.train.steps_per_update
        else:
            self._learning = len(self._replay) >= self._burn_in
        if new_steps == 0 and self._updates_due < 1:
            time.sleep(_PAUSE_SECONDS)
            self._profile.book("wait")
        for _ in range(min(int(self._updates_due), _MOST_UPDATES_AT_ONCE)):
            batch = self._replay.sample(self.config.agent.batch_size)
            self._profile.book("sample")
            result = self._agent.update(batch)
            self._replay.learned(batch, result.errors)
            self._profile.book("update")
            self._updates_due -= 1
            if self._agent.updates % self.config.train.publish_every == 0:
                self._collector.publish()
                self._profile.book("publish")
            self._loss_sum += result.loss
            self._q_sum += result.mean_q

    def _is_spent(self) -> bool:
        """Whether the steps or the minutes that the training was given are up."""
        minutes = self.config.train.minutes
        too_long = minutes is not None and self.seconds >= 60 * minutes
        return too_long or self.steps >= self.config.train.steps

    def _is_enough(self) -> bool:
        target = self.config.evaluation.stop_at_clear_rate
        reached = self._best is not None and target is not None and self._best.clear_rate >= target
        return reached or self._stop_requested()

    def _record(self, episode: Episode) -> None:
        if not episode.from_start:
            return
        self.stats.add(episode)
        if not episode.flag:
            return
        number = self.stats.episodes
        self._display.flag(episode, step=self.steps, number=number)
        self._metrics.flag(episode, step=self.steps, number=number, seconds=self.seconds)
        if self.stats.flags == 1:
            self._save_as(FIRST_FLAG)

    @property
    def seconds(self) -> float:
        """Seconds trained, those before a resume included."""
        return self._seconds_before + time.monotonic() - self._began

    def _show_profile(self) -> None:
        for line in profile_lines("learner", LEARNER_PARTS, self._profile.seconds):
            self._display.line(line)
        for number, seconds in enumerate(self._collector.actor_seconds()):
            for line in profile_lines(f"actor {number}", ACTOR_PARTS, seconds):
                self._display.line(line)

    # -- evaluation ------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        every = self.config.evaluation.every_minutes
        if every is None or not self._learning or self._candidate is not None:
            return False
        return time.monotonic() - self._evaluated_at >= 60 * every

    def _ask_for_evaluation(self) -> None:
        self._evaluated_at = time.monotonic()
        self._evaluated_updates = self._agent.updates
        self._candidate = detached(self.get_state())
        self._collector.evaluate()

    def _take_evaluation(self, result: Evaluation) -> None:
        if self._candidate is None:
            return
        steps, seconds = self._candidate["steps"], self._candidate["seconds"]
        self._metrics.evaluation(result, step=steps, seconds=seconds)
        self._display.evaluation(result)
        if result.better_than(self._best):
            self._best = result
            self._checkpointer.save(self._candidate, steps=self.steps, name=BEST)
        self._candidate = None

    def _evaluate_last(self) -> None:
        """What was learned since the last evaluation may be the best; a stop does not wait."""
        if self.config.evaluation.every_minutes is None:
            return
        self._await_evaluation()
        if self._agent.updates > self._evaluated_updates and not self._is_enough():
            self._ask_for_evaluation()
            self._await_evaluation()

    def _await_evaluation(self) -> None:
        while self._candidate is not None and not self._is_enough():
            self._collect_and_learn(self.steps)

    # -- reporting -------------------------------------------------------------

    def _report(self) -> None:
        now = time.monotonic()
        elapsed = max(now - self._row_at, 1e-9)
        updates = self._agent.updates - self._row_updates
        mean_reward, mean_x, flag_share = self.stats.means()
        row = Row(
            step=self.steps,
            seconds=round(self.seconds, 1),
            episodes=self.stats.episodes,
            updates=self._agent.updates,
            steps_per_second=round((self.steps - self._row_steps) / elapsed, 1),
            updates_per_second=round(updates / elapsed, 1),
            exploration_rate=round(exploration_rate(self.config.exploration, self.steps), 6),
            mean_reward=round(mean_reward, 3),
            mean_x=round(mean_x, 1),
            best_x=self.stats.best_x,
            flags=self.stats.flags,
            flag_share=round(flag_share, 3),
            loss=self._loss_sum / max(1, updates),
            mean_q=self._q_sum / max(1, updates),
            replay=len(self._replay),
        )
        if self._threads is not None:
            self._threads.adjust(self._collector.actor_seconds())
        self._metrics.write(row)
        self._display.row(row)
        self._row_at, self._row_steps, self._row_updates = now, self.steps, self._agent.updates
        self._loss_sum = self._q_sum = 0.0
        if self.config.evaluation.every_minutes is None:
            self._keep_best(mean_x)

    def _keep_best(self, mean_x: float) -> None:
        """Without evaluations, the best is judged by the episodes of the training."""
        if self.stats.episodes >= _BEST_AFTER_EPISODES and mean_x > _BETTER_BY * self._best_mean_x:
            self._best_mean_x = mean_x
            self._save_as(BEST)

    def _begin_clocks(self) -> None:
        self._began = self._row_at = self._saved_at = self._evaluated_at = time.monotonic()
        self._row_steps = self._saved_steps = self.steps
        self._row_updates = self._evaluated_updates = self._agent.updates

    # -- saving ----------------------------------------------------------------

    def _save_is_due(self) -> bool:
        settings = self.config.checkpoint
        minutes = (time.monotonic() - self._saved_at) / 60
        steps = self.steps - self._saved_steps
        return (
            minutes >= settings.every_minutes or steps >= settings.every_steps
        ) and not self._checkpointer.busy

    def save(self, *, wait: bool = False) -> None:
        """Writes a checkpoint of this moment, in the background unless `wait`."""
        self._saved_at, self._saved_steps = time.monotonic(), self.steps
        self._checkpointer.save(self.get_state(), steps=self.steps, wait=wait)

    def _save_as(self, name: str) -> None:
        self._checkpointer.save(self.get_state(), steps=self.steps, name=name)

    def get_state(self) -> dict[str, Any]:
        """The content of a checkpoint: every part asked for its own."""
        return {
            "version": self._version,
            "config": dump_config(self.config),
            "steps": self.steps,
            "episodes": self.stats.episodes,
            "exploration_rate": exploration_rate(self.config.exploration, self.steps),
            "seconds": self.seconds,
            "updates_due": self._updates_due,
            "best_mean_x": self._best_mean_x,
            "best": None if self._best is None else asdict(self._best),
            "agent": self._agent.get_state(),
            "collector": self._collector.get_state(),
            "sampler": self._replay.get_state(),
            "stats": self.stats.get_state(),
            "torch_random": torch.get_rng_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`; the rings are restored by the caller.

        Raises:
            RuntimeError, ValueError, KeyError: the state is of another kind of run.
        """
        self.steps = state["steps"]
        self._seconds_before = state["seconds"]
        self._updates_due = state["updates_due"]
        self._best_mean_x = state["best_mean_x"]
        self._best = None if state["best"] is None else Evaluation(**state["best"])
        self._agent.set_state(state["agent"])
        self._collector.set_state(state["collector"])
        self._replay.set_state(state["sampler"])
        self.stats.set_state(state["stats"])
        self._learning = len(self._replay) >= self._burn_in
        torch.set_rng_state(state["torch_random"])
