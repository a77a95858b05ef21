"""Every number of a run, its meaning, its unit and its range: the one place for them.

The dataclasses are the schema. `config_file.py` reads YAML into them, and writes
them back with each option's text as its comment.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from mario_ddqn.actions import ACTION_SETS
from mario_ddqn.cores import CORE_NAMES


def option(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A dataclass field with its documentation and allowed values.

    `least` and `most` are inclusive bounds of a number, `above` an exclusive
    one; `choices` are the allowed values of a string.
    """
    metadata = {"doc": doc, "least": least, "most": most, "above": above, "choices": choices}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(kind: type, doc: str) -> Any:
    """A dataclass field that holds a group of options."""
    return dataclasses.field(default_factory=kind, metadata={"doc": doc})


@dataclass(frozen=True)
class RewardTerms:
    """What Mario is rewarded for. Each frame's sum is clipped, then scaled."""

    progress: float = option(1.0, "per pixel walked to the right (negative to the left)")
    clock: float = option(1.0, "per tick of the game's clock that passes, subtracted", least=0)
    death: float = option(-25.0, "for losing a life, a time-out included", most=0)
    flag: float = option(0.0, "for touching the flag or the axe", least=0)
    warp_zones: bool = option(
        True, "count pixels walked in a warp zone (1-2, 4-2), which leads away from the flag"
    )
    clip: float | None = option(15.0, "bound of a frame's sum on both sides; null: none", above=0)
    scale: float = option(1.0, "factor on the whole", above=0)


@dataclass(frozen=True)
class EnvConfig:
    """The game and what the agent sees of it."""

    stage: str = option("1-1", "1-1 to 8-4, or game: the whole game from 1-1")
    core: str = option(
        "auto",
        "emulator: fceumm (stable-retro; fast), nes-py, or auto: the faster one installed",
        choices=CORE_NAMES,
    )
    actions: str | list[str] = option(
        "right_only",
        f"{', '.join(ACTION_SETS)}; or a list such as [right, right+A, NOOP]",
    )
    frame_skip: int = option(4, "frames an action is held", least=1, most=60)
    max_last_two: bool = option(False, "observe the brighter pixel of a step's last two frames")
    fresh_jumps: bool = option(
        False,
        "release A for a frame when it is pressed again and Mario stands: the game jumps only "
        "when A is newly pressed, and no picture shows that it is held",
    )
    size: int = option(84, "side of the square observation, pixels", least=36, most=224)
    stack: int = option(4, "frames an observation is made of", least=1, most=16)
    noop_max: int = option(
        30, "an episode starts after 0 to so many frames without buttons", least=0, most=1000
    )
    max_steps: int | None = option(
        None, "truncate an episode after so many agent steps; null: never", least=1
    )
    stall_steps: int | None = option(
        None, "truncate an episode after so many agent steps without progress; null: never", least=1
    )
    reward: RewardTerms = section(RewardTerms, "reward terms, per frame")


@dataclass(frozen=True)
class NetworkConfig:
    """The Q network: the convolutions of the PyTorch tutorial (and of Mnih et al. 2015)."""

    width: float = option(
        1.0, "factor on the 32, 64 and 64 filters of the convolutions", above=0, most=8
    )
    hidden: int = option(512, "units of the hidden layer", least=1, most=8192)
    dueling: bool = option(False, "value and advantage heads (Wang et al. 2016)")


@dataclass(frozen=True)
class AgentConfig:
    """Double DQN (van Hasselt et al. 2016)."""

    network: NetworkConfig = section(NetworkConfig, "the online and the target network")
    double: bool = option(
        True,
        "the online network chooses the action that the target network values; false: the target "
        "network does both (DQN, Mnih et al. 2015)",
    )
    gamma: float = option(0.9, "discount of a step's reward", least=0, most=1)
    n_step: int = option(1, "steps of reward before the target network is asked", least=1, most=100)
    batch_size: int = option(32, "transitions an update learns from", least=1, most=65536)
    learning_rate: float = option(0.00025, "Adam's step size", above=0, most=1)
    adam_eps: float = option(1e-8, "Adam's epsilon", above=0, most=1)
    grad_clip: float | None = option(
        None, "bound of the gradient's norm over all weights; null: none", above=0
    )
    learning_rate_final: float | None = option(
        None, "Adam's step size at the end of learning_rate_steps; null: stays as it is", above=0
    )
    learning_rate_steps: int = option(
        1_000_000, "updates over which it goes from the one to the other, linearly", least=1
    )
    bf16: bool | str = option(
        "auto",
        "compute the convolutions and hidden layers of an update in bfloat16; auto: on processors "
        "with AMX, where it is faster",
        choices=("auto",),
    )
    compile: bool = option(
        False, "torch.compile the update; needs a C++ compiler, and a minute at the start"
    )
    average: float | None = option(
        None,
        "play and evaluate with a moving average of the weights that moves by this share each "
        "update (Polyak), faster at first; null: with the newest weights",
        above=0,
        most=1,
    )
    random_shift: int = option(
        0,
        "move each observation of an update by up to so many pixels (DrQ, Kostrikov et al. "
        "2021); 0: off",
        least=0,
        most=32,
    )
    sync_every: int | None = option(
        3333, "copy online to target network every so many updates; null: soft_sync", least=1
    )
    soft_sync: float | None = option(
        None,
        "instead of copying: move the target this share of the way, each update; null: sync_every",
        above=0,
        most=1,
    )


@dataclass(frozen=True)
class ExplorationConfig:
    """How often actions are random (epsilon-greedy)."""

    kind: str = option(
        "decay",
        "decay: one rate that falls with the steps; ladder: a fixed rate for each lane",
        choices=("decay", "ladder"),
    )
    exploration_rate: float = option(1.0, "decay: the rate at the start", least=0, most=1)
    exploration_rate_decay: float = option(
        0.99999975, "decay: factor on the rate each step", above=0, most=1
    )
    exploration_rate_min: float = option(0.1, "decay: the rate never falls below", least=0, most=1)
    ladder_base: float = option(
        0.4,
        "ladder: lane i of N has base^(1 + slope*i/(N-1)) (Horgan et al. 2018)",
        above=0,
        most=1,
    )
    ladder_slope: float = option(7.0, "ladder: see ladder_base", least=0)
    sticky: float = option(
        0.0,
        "chance that a lane's last action is repeated instead (sticky actions, Machado et al. "
        "2018), so that a policy is learned that stands it; 0: off",
        least=0,
        most=0.95,
    )
    sticky_share: float = option(
        0.5, "share of the lanes with sticky actions, spread evenly", least=0, most=1
    )
    repeat_max: int = option(
        1,
        "a random action is held 1 to so many steps, n with weight 1/n^2 (ez-greedy, "
        "Dabney et al. 2021); 1: off",
        least=1,
        most=10_000,
    )


@dataclass(frozen=True)
class StartStatesConfig:
    """Episodes that start in the middle of the stage (start_states.py)."""

    share: float = option(0.0, "share of the episodes that do; 0: none", least=0, most=0.95)
    cell_pixels: int = option(64, "a start state is kept for each so many pixels", least=8)
    alive_steps: int = option(
        30, "agent steps Mario must have lived on from a state for it to be kept", least=0
    )


@dataclass(frozen=True)
class DemonstrationsConfig:
    """A way to the flag that the program finds before it learns (demonstrations.py)."""

    search_steps: int = option(
        0,
        "agent steps of archive search for a way to the flag, at most, counted as the run's "
        "(Go-Explore, Ecoffet et al. 2021); 0: none",
        least=0,
    )
    share: float = option(
        0.25, "share of a batch that is taken from the way found", least=0, most=0.9
    )
    margin: float = option(
        0.3,
        "how far the values of the way's actions shall be above all others (DQfD, Hester et "
        "al. 2018); 0: no matter",
        least=0,
    )


@dataclass(frozen=True)
class ReplayConfig:
    """The replay memory."""

    maxlen: int | str = option(
        100_000,
        "transitions kept, 7 KB each at 84x84; auto: what fits",
        least=1000,
        choices=("auto",),
    )
    device: str = option(
        "auto",
        "memory it lies in; auto: the GPU's if all fits there",
        choices=("auto", "cpu", "cuda"),
    )
    if_too_big: str = option(
        "error",
        "when maxlen does not fit: error ends at start-up, shrink takes what fits",
        choices=("error", "shrink"),
    )
    reserve_gb: float = option(2.0, "memory left free beside it, GB", least=0)
    priority: float = option(
        0.0,
        "transitions are drawn in proportion to error^priority (Schaul et al. 2016, alpha); "
        "0: all alike",
        least=0,
        most=1,
    )
    importance: float = option(
        0.4,
        "with priority: how far the loss makes up for the uneven draw (Schaul et al. 2016, beta)",
        least=0,
        most=1,
    )
    save: bool = option(True, "save it beside the checkpoints, so that a resumed run remembers")


@dataclass(frozen=True)
class TrainConfig:
    """The training loop."""

    steps: int = option(10_000_000, "agent steps in all; Ctrl-C ends earlier", least=1)
    minutes: float | None = option(
        None, "end after so many minutes of training, those before a resume included", above=0
    )
    burn_in: int = option(
        10_000, "transitions in the replay memory before the first update", least=1
    )
    steps_per_update: float = option(3.0, "agent steps for each update", above=0, most=10_000)
    actors: int | str = option(
        "auto",
        "actor processes beside the learner; auto: a core each but one; 0: all in one process, "
        "deterministic",
        least=0,
        most=64,
        choices=("auto",),
    )
    lanes: int = option(
        1, "environments an actor plays by turns, with one batch of the network", least=1, most=256
    )
    publish_every: int = option(
        20, "updates after which the actors get the new weights", least=1, most=100_000
    )


@dataclass(frozen=True)
class EvaluationConfig:
    """Greedy episodes from the stage's start, played now and then while training."""

    every_minutes: float | None = option(
        None,
        "minutes from one evaluation to the next, the last when the time is up; null: none",
        above=0,
    )
    episodes: int = option(
        31,
        "episodes of an evaluation, their starts spread over 0 to env.noop_max frames without "
        "buttons; one for each is exact, as a start always goes the same way",
        least=1,
        most=1000,
    )
    stop_at_clear_rate: float | None = option(
        None,
        "end the training when an evaluation reaches this clear rate; null: never",
        above=0,
        most=1,
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """What is saved, and how often."""

    every_minutes: float = option(5.0, "minutes from one checkpoint to the next", above=0)
    every_steps: int = option(100_000, "agent steps from one checkpoint to the next", least=1)
    keep: int = option(3, "newest checkpoints kept (best and first-flag ones besides)", least=1)


@dataclass(frozen=True)
class LogConfig:
    """What is told of the run."""

    every_seconds: float = option(
        10.0, "seconds from one row of metrics.csv (or line of plain output) to the next", above=0
    )
    tensorboard: bool = option(True, "write TensorBoard scalars")
    profile: bool = option(False, "tell at the end where the seconds went, process by process")


@dataclass(frozen=True)
class Config:
    """All of a run."""

    name: str | None = option(
        None, "folder of the run in checkpoints/; null: named after config file and stage"
    )
    seed: int = option(1, "seed of all random numbers", least=0, most=2**31 - 1)
    device: str = option("auto", "where the networks run", choices=("auto", "cpu", "cuda", "mps"))
    env: EnvConfig = section(EnvConfig, "the game and what the agent sees of it")
    agent: AgentConfig = section(AgentConfig, "Double DQN")
    exploration: ExplorationConfig = section(ExplorationConfig, "how often actions are random")
    start_states: StartStatesConfig = section(
        StartStatesConfig,
        "start-state archive: episodes that start where Mario has been (Salimans & Chen 2018)",
    )
    demonstrations: DemonstrationsConfig = section(
        DemonstrationsConfig, "a way to the flag, found before learning, as demonstration"
    )
    replay: ReplayConfig = section(ReplayConfig, "the replay memory")
    train: TrainConfig = section(TrainConfig, "the training loop")
    evaluation: EvaluationConfig = section(
        EvaluationConfig, "greedy episodes from the stage's start, played while training"
    )
    checkpoint: CheckpointConfig = section(CheckpointConfig, "what is saved, and how often")
    log: LogConfig = section(LogConfig, "what is told of the run")
