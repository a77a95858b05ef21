"""Acting: plays several lanes with one batch of the network for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mario_ddqn.actions import action_names
from mario_ddqn.config import Config
from mario_ddqn.env import MarioEnv
from mario_ddqn.evaluate import Evaluation, GreedyActions, Rules, evaluate
from mario_ddqn.exploration import Exploration
from mario_ddqn.profile import ACTOR_PARTS, Profile
from mario_ddqn.rings import Rings
from mario_ddqn.start_states import Cell, StartStates
from mario_ddqn.wrappers import FrameStack, make_env


@dataclass(frozen=True)
class Episode:
    """One finished episode of a lane."""

    lane: int
    steps: int
    reward: float
    x: int
    progress: int
    world: int
    stage: int
    time: int
    flag: bool
    death: bool
    truncated: bool
    rate: float
    from_start: bool


class Actor:
    """Steps the lanes it is given and writes what happens into the rings."""

    def __init__(
        self,
        envs: list[FrameStack],
        exploration: Exploration,
        rings: Rings,
        start_states: StartStates,
        *,
        config: Config,
        first_lane: int,
        seeds: list[int],
    ) -> None:
        """`envs` become the lanes `first_lane`, `first_lane` + 1, … of the run.

        `seeds`, one a lane, decide on the random starts of its episodes.
        """
        self._envs = envs
        self._games: list[MarioEnv] = [env.unwrapped for env in envs]  # type: ignore[misc]
        self._exploration = exploration
        self._rings = rings
        self._start_states = start_states
        self._config = config
        self._evaluation_env: FrameStack | None = None
        self._first_lane = first_lane
        self._seeds = seeds
        self._rewards = np.zeros(len(envs))
        self._steps = np.zeros(len(envs), np.int64)
        self._best_x = np.zeros(len(envs), np.int64)
        self._from_start = np.ones(len(envs), bool)
        self._observations: np.ndarray | None = None
        self.profile = Profile(ACTOR_PARTS)

    @property
    def lanes(self) -> int:
        """How many environments it plays."""
        return len(self._envs)

    def step(self, greedy_actions: GreedyActions, run_step: int) -> list[Episode]:
        """One agent step in every lane; returns the episodes that ended in it.

        The first step begins an episode in each, and cuts off what an earlier
        actor has left unfinished in the rings.
        """
        if self._observations is None:
            for lane in range(self.lanes):
                self._rings.cut(self._first_lane + lane)
            self._observations = np.stack(
                [self._begin(lane, seed=seed) for lane, seed in enumerate(self._seeds)]
            )
        actions = self._exploration.choose(greedy_actions(self._observations), run_step)
        self.profile.book("network")
        rates = self._exploration.rates(run_step)
        episodes = []
        for lane, env in enumerate(self._envs):
            observation, reward, terminated, truncated, info = env.step(actions[lane])
            reward = float(reward)
            self._rings.add(
                self._first_lane + lane,
                int(actions[lane]),
                reward,
                observation[-1],
                terminated=terminated,
                truncated=truncated,
            )
            self._rewards[lane] += reward
            self._steps[lane] += 1
            self._best_x[lane] = max(self._best_x[lane], info["x_pos"])
            if terminated or truncated:
                episodes.append(self._finish(lane, info, truncated, float(rates[lane])))
                observation = self._begin(lane)
            else:
                self._start_states.step(lane, self._games[lane])
            self._observations[lane] = observation
        self.profile.book("environment")
        return episodes

    def _begin(self, lane: int, seed: int | None = None) -> np.ndarray:
        start = self._start_states.choose()
        options = None if start is None else {"state": start}
        observation, _info = self._envs[lane].reset(seed=seed, options=options)
        self._start_states.begin(lane)
        self._from_start[lane] = start is None
        self._rings.begin(self._first_lane + lane, observation[-1])
        self._exploration.end_episode(lane)
        self._rewards[lane] = self._steps[lane] = self._best_x[lane] = 0
        return observation

    def _finish(self, lane: int, info: dict[str, Any], truncated: bool, rate: float) -> Episode:
        return Episode(
            lane=self._first_lane + lane,
            steps=int(self._steps[lane]),
            reward=float(self._rewards[lane]),
            x=int(self._best_x[lane]),
            progress=info["progress"],
            world=info["world"],
            stage=info["stage"],
            time=info["time"],
            flag=info["flag_get"],
            death=info["death"],
            truncated=truncated,
            rate=rate,
            from_start=bool(self._from_start[lane]),
        )

    def take_new_starts(self) -> dict[Cell, dict[str, Any]]:
        """Start states for new stretches of the stage, since the last call."""
        return self._start_states.take_new()

    def get_state(self) -> dict[str, Any]:
        """Where each lane is, so that a run goes on in the middle of its episodes."""
        if self._observations is None:
            return {}
        return {
            "games": [game.get_state() for game in self._games],
            "frames": [env.frames.copy() for env in self._envs],
            "rewards": self._rewards.tolist(),
            "steps": self._steps.tolist(),
            "best_x": self._best_x.tolist(),
            "from_start": self._from_start.tolist(),
            "start_states": self._start_states.get_state(),
            "exploration": self._exploration.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to `get_state`; the rings must have been restored to the same moment.

        Raises:
            ValueError: the state is of another core or another number of lanes.
        """
        if "games" not in state:  # of actor processes, whose episodes are begun anew
            return
        if len(state["games"]) != self.lanes:
            raise ValueError(f"the state has {len(state['games'])} lanes, this run {self.lanes}")
        for game, game_state in zip(self._games, state["games"], strict=True):
            game.set_state(game_state)
        for env, frames in zip(self._envs, state["frames"], strict=True):
            env.frames = np.asarray(frames)
        self._observations = np.stack([env.frames for env in self._envs])
        self._rewards[:] = state["rewards"]
        self._steps[:] = state["steps"]
        self._best_x[:] = state["best_x"]
        self._from_start[:] = state["from_start"]
        self._start_states.set_state(state["start_states"])
        self._exploration.set_state(state["exploration"])

    def evaluate(self, greedy_actions: GreedyActions) -> Evaluation:
        """Plays greedy episodes from the stage's start, between two steps of the lanes."""
        if self._evaluation_env is None:
            self._evaluation_env = make_env(self._config.env)
        self.profile.book("rest")
        rules = Rules(noop_max=self._config.env.noop_max, spread=True)
        result = evaluate(
            greedy_actions, self._evaluation_env, rules, self._config.evaluation.episodes
        )
        self.profile.book("evaluation")
        return result

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()


def make_actor(
    config: Config,
    rings: Rings,
    lanes: range,
    known_starts: dict[Cell, dict[str, Any]],
    *salt: int,
) -> Actor:
    """The actor of some of a run's lanes, each with random numbers of its own.

    `known_starts` are start states to begin with. Other `salt`, other random
    numbers: for actors that go on where another ended.
    """
    exploration = Exploration(
        config.exploration,
        lanes=lanes,
        lane_count=rings.lanes,
        action_count=len(action_names(config.env.actions)),
        random=np.random.default_rng([config.seed, 2, lanes.start, *salt]),
    )
    seeds = [
        int(np.random.SeedSequence([config.seed, 3, lane, *salt]).generate_state(1)[0])
        for lane in lanes
    ]
    envs = [make_env(config.env) for _ in lanes]
    core = envs[0].unwrapped.core.name  # type: ignore[attr-defined]
    start_states = StartStates(
        config.start_states,
        len(lanes),
        np.random.default_rng([config.seed, 5, lanes.start, *salt]),
        {cell: state for cell, state in known_starts.items() if state["core"] == core},
    )
    return Actor(
        envs,
        exploration,
        rings,
        start_states,
        config=config,
        first_lane=lanes.start,
        seeds=seeds,
    )
