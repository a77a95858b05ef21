"""Super Mario Bros. as a Gymnasium environment, on any core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from mario_ddqn import ram as game
from mario_ddqn.actions import NOOP, START, A, action_names, button_byte
from mario_ddqn.config import RewardTerms
from mario_ddqn.cores import SCREEN_SHAPE, Core, make_core
from mario_ddqn.env_names import STAGES, WHOLE_GAME
from mario_ddqn.errors import UserError
from mario_ddqn.randomness import get_random, set_random

# In these worlds stage 1 is followed by an area that only shows Mario walking
# into a pipe; it is counted, so that the areas of stages 2 to 4 are one later.
_WORLDS_WITH_INTRO = frozenset((1, 2, 4, 7))

# Mario runs at 2.5 pixels a frame; 5 is gym-super-mario-bros' bound too. More
# than that is a pipe, a warp, a maze that turns back, or a new life.
_MAX_PIXELS_PER_FRAME = 5
# The longest stretch without control is the end of a world, some 900 frames.
_MAX_FRAMES_WITHOUT_CONTROL = 3000


class _Progress:
    """Pixels walked, counted on across pipes, areas and lives.

    A jump backwards inside one area is a maze that sent Mario back (4-4, 7-4,
    8-4): the way he walks again does not count a second time. The way through a
    warp zone counts only if it shall: in a single stage it is a dead end.
    """

    def __init__(self, ram: game.Ram, warp_zones: bool) -> None:
        self.warp_zones = warp_zones
        self.x = game.x_pos(ram)
        self.key = game.area_key(ram)
        self.debt = 0
        self.total = 0
        self.best = 0

    def update(self, ram: game.Ram) -> int:
        """Pixels gained (or, below 0, lost) in this frame."""
        x = game.x_pos(ram)
        gained = x - self.x
        self.x = x
        if not -_MAX_PIXELS_PER_FRAME <= gained <= _MAX_PIXELS_PER_FRAME:
            key = game.area_key(ram)
            self.debt = self.debt + max(0, -gained) if key == self.key else 0
            self.key = key
            gained = 0
        elif self.debt and gained > 0:
            paid = min(gained, self.debt)
            self.debt -= paid
            gained -= paid
        if not self.warp_zones and game.is_warp_zone(ram):
            gained = 0
        self.total += gained
        self.best = max(self.best, self.total)
        return gained


class MarioEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One stage of Super Mario Bros., or the whole game.

    Observations are the picture, uint8 RGB of shape (224, 240, 3), the same on
    both cores. The frame skip lives here and not in a wrapper, so that nothing
    is drawn, converted or copied for frames nobody looks at, while flag, death
    and progress are still looked for in each of them.

    As in gym-super-mario-bros, stretches without control (pipes, the walk into
    a castle, a lost life in the whole game) are run through without the agent.

    Episodes of a stage end (`terminated`) with the flag, the axe or the loss of
    a life, a time-out included; of the whole game, with the last life or the
    end of 8-4. `truncated` is an end by `max_steps` or `stall_steps` only.

    `info` has the keys of gym-super-mario-bros (x_pos, y_pos, time, coins, life,
    score, status, stage, world, flag_get) and: `death` (a life was lost in this
    step), `progress` (pixels walked in the episode, counted on across areas, and
    in warp zones if the reward's `warp_zones` says so), `stalled` (the episode
    ended by `stall_steps`).
    """

    # Declared as an instance's variable by Gymnasium.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012

    def __init__(
        self,
        stage: str = "1-1",
        *,
        core: str = "auto",
        actions: str | Sequence[str] = "right_only",
        frame_skip: int = 1,
        max_last_two: bool = False,
        fresh_jumps: bool = False,
        reward: RewardTerms | None = None,
        noop_max: int = 0,
        max_steps: int | None = None,
        stall_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Switches on a core and plays it to the start of the stage.

        Args:
            stage: `W-S` (1-1 to 8-4), or `game` for the whole game from 1-1.
            core: `auto`, `fceumm` or `nes-py`.
            actions: name of an action set, or a list of combinations such as `right+A`.
            frame_skip: frames a step holds its buttons.
            max_last_two: observe the pixel-wise maximum of the last two frames.
            fresh_jumps: release A for the first frame of a step that presses it, if it has
                been held and Mario stands. The game jumps only when A is newly pressed,
                and no picture shows that it is held: without this, a policy that always
                chooses the same action stands before a step for ever.
            reward: weights of the reward; default: those of gym-super-mario-bros 7.
            noop_max: frames without buttons before an episode, uniform in 0..noop_max.
            max_steps: truncate episodes after so many steps.
            stall_steps: truncate episodes after so many steps without new progress.
            render_mode: None or `rgb_array`.

        Raises:
            UserError: an argument is not one of the above, or the core is not installed.
        """
        if stage != WHOLE_GAME and stage not in STAGES:
            raise UserError(f"unknown stage {stage!r}; stages are 1-1 to 8-4, or {WHOLE_GAME}")
        if frame_skip < 1:
            raise UserError(f"frame_skip is {frame_skip}; it must be at least 1")
        self.stage = stage
        self.action_names = action_names(actions)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, SCREEN_SHAPE, np.uint8)
        self.action_space = spaces.Discrete(len(self.action_names))
        self._buttons = [button_byte(name) for name in self.action_names]
        self._frame_skip = frame_skip
        self._max_last_two = max_last_two and frame_skip > 1
        self._fresh_jumps = fresh_jumps and frame_skip > 1
        self._held = NOOP
        self._reward = reward or RewardTerms()
        self._noop_max = noop_max
        self._max_steps = max_steps
        self._stall_steps = stall_steps
        # Called with the picture of every frame there is, skipped ones included.
        self.on_frame: Callable[[np.ndarray], None] | None = None
        self.core: Core = make_core(core)
        self._single = stage != WHOLE_GAME
        self._steps = self._stalled_for = 0
        self._play_to_start()
        self._start = self.core.save_state()
        self._begin()

    # -- Gymnasium -------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the stage, or goes on from elsewhere.

        `options={"noops": n}` fixes the number of no-op frames;
        `options={"state": s}` starts the episode at a moment of `get_state`
        instead, with steps and progress counted from there.
        """
        super().reset(seed=seed)
        options = options or {}
        if "state" in options:
            self.core.load_state(np.asarray(options["state"]["machine"]).tobytes())
            self._begin()
            return self.core.screen(), self._info(self.core.ram(), False, False)
        noops = options.get("noops")
        if noops is None:
            noops = int(self.np_random.integers(self._noop_max + 1)) if self._noop_max else 0
        self.core.load_state(self._start)
        self.idle(noops)
        self._begin()
        return self.core.screen(), self._info(self.core.ram(), False, False)

    def step(
        self, action: np.int64 | int
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Holds the buttons of `action` for `frame_skip` frames, fewer if the episode ends."""
        core, buttons = self.core, self._buttons[action]
        first = buttons & ~A if self._jumps_afresh(buttons) else buttons
        self._held = buttons
        reward, clear, death, terminated = 0.0, False, False, False
        earlier: np.ndarray | None = None
        best_before = self._progress.best
        for frame in range(self._frame_skip):
            self._advance(first if frame == 0 else buttons)
            ram = core.ram()
            if game.is_uneventful(ram):
                reward += self._frame_reward(ram, False, False)
            else:
                clear = game.is_clear(ram)
                dying = not clear and (game.is_dying(ram) or game.is_dead(ram))
                death = death or dying
                reward += self._frame_reward(ram, clear, dying)
                if self._single:
                    terminated = clear or dying
                else:
                    terminated = game.is_game_over(ram) or (clear and self._is_last_stage(ram))
                if terminated:
                    break
                self._skip_to_control(ram, dying)
            if self._max_last_two and frame == self._frame_skip - 2:
                earlier = core.screen()
        picture = core.screen()
        if earlier is not None:
            np.maximum(picture, earlier, out=picture)
        self._steps += 1
        self._stalled_for = 0 if self._progress.best > best_before else self._stalled_for + 1
        stalled = self._stall_steps is not None and self._stalled_for >= self._stall_steps
        too_long = self._max_steps is not None and self._steps >= self._max_steps
        truncated = not terminated and (stalled or too_long)
        info = self._info(ram, clear, death)
        info["stalled"] = truncated and stalled
        return picture, reward * self._reward.scale, terminated, truncated, info

    def render(self) -> np.ndarray | None:
        """The picture, uint8 RGB, if `render_mode` is `rgb_array`."""
        return self.core.screen() if self.render_mode == "rgb_array" else None

    def idle(self, frames: int) -> None:
        """Lets the game run on without buttons, for no-op starts and for those who watch."""
        for _ in range(frames):
            self._advance(NOOP)

    def close(self) -> None:
        """Switches the core off."""
        self.core.close()

    # -- to go on in the middle of an episode ----------------------------------

    def get_state(self) -> dict[str, Any]:
        """All that makes this moment, as numbers, text and a uint8 array."""
        progress = self._progress
        return {
            "core": self.core.name,
            "machine": np.frombuffer(self.core.save_state(), np.uint8),
            "progress": [progress.x, progress.debt, progress.total, progress.best],
            "area_key": list(progress.key),
            "steps": self._steps,
            "stalled_for": self._stalled_for,
            "held": self._held,
            "random": get_random(self.np_random),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to the moment of `get_state`.

        Raises:
            ValueError: the state is of another core.
        """
        if state["core"] != self.core.name:
            raise ValueError(f"a state of {state['core']} does not load on {self.core.name}")
        self.core.load_state(np.asarray(state["machine"]).tobytes())
        self._begin()
        progress = self._progress
        progress.x, progress.debt, progress.total, progress.best = state["progress"]
        x, y, z, pointer, life = state["area_key"]
        progress.key = (x, y, z, pointer, life)
        self._steps = state["steps"]
        self._stalled_for = state["stalled_for"]
        self._held = state["held"]
        set_random(self.np_random, state["random"])

    # -- inside ----------------------------------------------------------------

    def _jumps_afresh(self, buttons: int) -> bool:
        held = self._fresh_jumps and buttons & self._held & A
        return bool(held) and game.is_standing(self.core.ram())

    def _advance(self, buttons: int) -> None:
        self.core.step(buttons)
        if self.on_frame is not None:
            self.on_frame(self.core.screen())

    def _begin(self) -> None:
        ram = self.core.ram()
        self._progress = _Progress(ram, self._reward.warp_zones)
        self._clock = game.time_left(ram)
        self._clock_digits = game.clock_digits(ram)
        self._steps = self._stalled_for = 0
        self._held = NOOP

    def _frame_reward(self, ram: game.Ram, clear: bool, dying: bool) -> float:
        terms = self._reward
        reward: float = terms.progress * self._progress.update(ram)
        digits = game.clock_digits(ram)
        if digits != self._clock_digits:
            self._clock_digits = digits
            clock = game.time_left(ram)
            # It only rises when an area or a life begins.
            reward += terms.clock * min(0, clock - self._clock)
            self._clock = clock
        if clear:
            reward += terms.flag
        elif dying:
            reward += terms.death
        if terms.clip is not None:
            reward = max(-terms.clip, min(terms.clip, reward))
        return reward

    def _info(self, ram: game.Ram, clear: bool, death: bool) -> dict[str, Any]:
        return {
            "coins": game.coins(ram),
            "flag_get": clear,
            "life": ram[game.LIFE],
            "score": game.score(ram),
            "stage": ram[game.STAGE] + 1,
            "status": game.status(ram),
            "time": game.time_left(ram),
            "world": ram[game.WORLD] + 1,
            "x_pos": game.x_pos(ram),
            "y_pos": game.y_pos(ram),
            "death": death,
            "progress": self._progress.total,
            "stalled": False,
        }

    @staticmethod
    def _is_last_stage(ram: game.Ram) -> bool:
        return ram[game.WORLD] == 7 and ram[game.STAGE] == 3

    def _target(self) -> tuple[int, int, int]:
        world, stage = (int(part) for part in self.stage.split("-"))
        area = stage + (1 if world in _WORLDS_WITH_INTRO and stage > 1 else 0)
        return world - 1, stage - 1, area - 1

    def _play_to_start(self) -> None:
        """Through the title screen, as gym-super-mario-bros does, frame by frame.

        A stage is chosen by writing it into RAM while START is pressed.
        """
        core = self.core
        core.step(START)
        core.step(NOOP)
        while game.time_left(core.ram()) == 0:
            core.step(START)
            if self._single:
                world, stage, area = self._target()
                core.poke(game.WORLD, world)
                core.poke(game.STAGE, stage)
                core.poke(game.AREA, area)
            core.step(NOOP)
            core.poke(game.PRELEVEL_TIMER, 0)
        # The clock's first tick tells that Mario can be moved.
        clock = game.time_left(core.ram())
        while game.time_left(core.ram()) >= clock:
            clock = game.time_left(core.ram())
            core.step(START)
            core.step(NOOP)

    def _skip_to_control(self, ram: game.Ram, dying: bool) -> None:
        """Runs on without buttons until Mario can be moved again.

        The same shortcuts as in gym-super-mario-bros: the death animation, the
        cut-scene after a world and the timers of area changes are cut short.
        """
        core = self.core
        if dying:
            core.poke(game.PLAYER_STATE, game.PLAYER_DEAD)
            self._advance(NOOP)
            ram = core.ram()
        if game.is_world_over(ram):
            clock = game.time_left(ram)
            while game.time_left(ram) == clock:
                self._advance(NOOP)
                ram = core.ram()
        if 1 < ram[game.AREA_CHANGE_TIMER] < 255:
            core.poke(game.AREA_CHANGE_TIMER, 1)
        for _ in range(_MAX_FRAMES_WITHOUT_CONTROL):
            if not (game.is_busy(ram) or game.is_world_over(ram)):
                return
            core.poke(game.PRELEVEL_TIMER, 0)
            self._advance(NOOP)
            ram = core.ram()
        raise RuntimeError("the game did not give control back")
