"""MarioEnv on the real game: Gymnasium's rules, rewards, ends, and the edges others got wrong."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from conftest import CORES
from mario_ddqn import ram as game
from mario_ddqn.config import RewardTerms
from mario_ddqn.env import MarioEnv
from mario_ddqn.errors import UserError

INFO_OF_GYM_SUPER_MARIO_BROS = {
    "coins",
    "flag_get",
    "life",
    "score",
    "stage",
    "status",
    "time",
    "world",
    "x_pos",
    "y_pos",
}
PIXELS_ONLY = RewardTerms(progress=1, clock=0, death=-100, flag=1000, clip=None)


def follow(env: MarioEnv, path: dict, until: int | None = None) -> list[tuple]:
    """Plays the first actions of a path: (reward, terminated, truncated, info) of each step."""
    env.reset(options={"noops": 0})
    steps = []
    for name in path["actions"][:until]:
        _, reward, terminated, truncated, info = env.step(env.action_names.index(name))
        steps.append((reward, terminated, truncated, info))
        if terminated or truncated:
            break
    return steps


def path_env(stage: str, path: dict, **arguments) -> MarioEnv:
    actions = sorted(set(path["actions"]))
    return MarioEnv(stage, core=path["core"], actions=actions, **arguments)


needs_fceumm = pytest.mark.skipif("fceumm" not in CORES, reason="the paths were found on FCEUmm")


def test_gymnasium_check(core_name: str) -> None:
    env = gymnasium.make("mario_ddqn:Mario-v0", core=core_name, render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize(("stage", "actions"), [("8-4", "complex"), ("game", ["right", "right+A"])])
def test_stages_and_actions(stage: str, actions, core_name: str) -> None:
    env = MarioEnv(stage, core=core_name, actions=actions)
    _, info = env.reset()
    world, number = (1, 1) if stage == "game" else (8, 4)
    assert (info["world"], info["stage"]) == (world, number)
    assert set(info) >= INFO_OF_GYM_SUPER_MARIO_BROS
    assert env.action_space.n == (12 if actions == "complex" else 2)


def test_every_stage_starts_where_it_should() -> None:
    for world in range(1, 9):
        for stage in range(1, 5):
            env = MarioEnv(f"{world}-{stage}")
            _, info = env.reset()
            assert (info["world"], info["stage"], info["life"]) == (world, stage, 2)
            assert info["time"] in (400, 300)
            env.close()


@pytest.mark.parametrize(
    "arguments",
    [{"stage": "9-1"}, {"frame_skip": 0}, {"actions": "fly"}, {"actions": ["right+jump"]}],
)
def test_wrong_arguments(arguments) -> None:
    with pytest.raises(UserError):
        MarioEnv(**arguments)


def test_noop_starts_are_seeded_and_differ() -> None:
    env = MarioEnv("1-1", noop_max=30)

    def clocks(seed: int) -> list[bytes]:
        env.reset(seed=seed)
        return [bytes(env.core.ram()) for _ in range(5) if env.reset()]

    assert clocks(1) == clocks(1)
    assert clocks(1) != clocks(2)
    env.reset(options={"noops": 7})
    frame_counter = env.core.ram()[0x09]
    env.reset(options={"noops": 0})
    assert (frame_counter - env.core.ram()[0x09]) % 256 == 7


def test_reward_terms_by_hand() -> None:
    """Of gym-super-mario-bros 7: pixels walked, minus clock ticks, in every frame."""
    plain = MarioEnv("1-1", actions=["right+B"], frame_skip=1)
    _, info = plain.reset()
    x, clock = info["x_pos"], info["time"]
    for _ in range(60):
        _, reward, *_, info = plain.step(0)
        assert reward == (info["x_pos"] - x) + min(0, info["time"] - clock)
        x, clock = info["x_pos"], info["time"]
    weighed = MarioEnv(
        "1-1",
        actions=["right+B"],
        reward=RewardTerms(progress=0.5, clock=0, death=0, clip=1, scale=10),
    )
    _, info = weighed.reset()
    x = info["x_pos"]
    for _ in range(60):
        _, reward, *_, info = weighed.step(0)
        assert reward == 10 * min(1, 0.5 * (info["x_pos"] - x))
        x = info["x_pos"]


def test_death_ends_the_episode_and_costs() -> None:
    env = MarioEnv("1-1", actions=["right+B"], frame_skip=4, reward=PIXELS_ONLY)
    env.reset()
    terminated = False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(0)
        assert not truncated
    # The first Goomba.
    assert info["death"]
    assert not info["flag_get"]
    assert -100 <= reward <= -90
    assert 250 < info["x_pos"] < 400


def test_time_out_is_a_death_of_the_game() -> None:
    env = MarioEnv("1-1", actions=["NOOP", "right"], frame_skip=4, reward=PIXELS_ONLY)
    env.reset()
    for digit in (0x7F8, 0x7F9):
        env.core.poke(digit, 0)
    env.core.poke(0x7FA, 2)
    for _ in range(100):
        _, reward, terminated, truncated, info = env.step(0)
        if terminated:
            break
    assert terminated
    assert not truncated
    assert info["death"]
    assert info["time"] == 0
    assert reward == -100


def test_step_limit_is_a_truncation() -> None:
    env = MarioEnv("1-1", actions=["NOOP"], max_steps=5)
    env.reset()
    ends = [env.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    env.reset()
    assert env.step(0)[2:4] == (False, False)


def test_stalling_is_a_truncation_and_progress_resets_it() -> None:
    env = MarioEnv("1-1", actions=["NOOP", "right"], frame_skip=4, stall_steps=10)
    env.reset()
    for _ in range(9):
        assert not env.step(0)[3]
    for _ in range(12):
        env.step(1)
    truncated_at = next(n for n in range(1, 50) if env.step(0)[3])
    # He slides on for some steps.
    assert 10 <= truncated_at <= 18


def test_frame_hook_sees_every_frame() -> None:
    env = MarioEnv("1-1", actions=["right"], frame_skip=4)
    frames: list[np.ndarray] = []
    env.on_frame = frames.append
    env.reset(options={"noops": 3})
    env.step(0)
    assert len(frames) == 7


def test_maximum_of_the_last_two_frames() -> None:
    one = MarioEnv("1-1", actions=["right+B"], frame_skip=1)
    two = MarioEnv("1-1", actions=["right+B"], frame_skip=4, max_last_two=True)
    one.reset()
    two.reset()
    for _ in range(10):
        pictures = [one.step(0)[0] for _ in range(4)]
        assert np.array_equal(two.step(0)[0], np.maximum(pictures[2], pictures[3]))


def test_fresh_jumps_by_hand() -> None:
    """A held from the start of the stage: one jump without, one after the other with."""

    def heights(**arguments) -> list[int]:
        env = MarioEnv("1-1", actions=["A"], frame_skip=4, **arguments)
        env.reset()
        return [env.step(0)[4]["y_pos"] for _ in range(60)]

    def takeoffs(ys: list[int]) -> int:
        return sum(a == 79 and b > 79 for a, b in itertools.pairwise([79, *ys]))

    assert takeoffs(heights()) == 1
    assert takeoffs(heights(fresh_jumps=True)) >= 3
    # In the air A stays held: the jump is as high as without.
    assert max(heights(fresh_jumps=True)) == max(heights())


def test_whole_game_ends_with_the_last_life() -> None:
    env = MarioEnv("game", actions=["right+B"], frame_skip=4, reward=PIXELS_ONLY)
    env.reset()
    lives, deaths, penalties = set(), 0, 0
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = env.step(0)
        lives.add(info["life"])
        deaths += info["death"]
        penalties += reward < -80
    # The counter goes 2, 1, 0, and round to 255 with the third death.
    assert {2, 1, 0} <= lives
    assert deaths >= 3
    assert penalties == deaths


def test_get_and_set_state_go_on_alike(core_name: str) -> None:
    env = MarioEnv(
        "1-1", core=core_name, actions="simple", frame_skip=4, stall_steps=60, noop_max=9
    )
    env.reset(seed=3)
    random = np.random.default_rng(1)
    for _ in range(30):
        env.step(1)
    state = env.get_state()
    actions = [int(random.choice([1, 2, 4, 5])) for _ in range(25)]

    def future() -> list:
        rows = []
        for action in actions:
            picture, reward, *ends, info = env.step(action)
            rows.append((picture.tobytes(), reward, tuple(ends), tuple(info.items())))
            if any(ends):
                env.reset()
        rows.append(env.reset()[0].tobytes())
        return rows

    expected = future()
    env.set_state(state)
    assert future() == expected


def test_state_of_another_core_is_refused() -> None:
    env = MarioEnv("1-1")
    env.reset()
    with pytest.raises(ValueError, match="does not load"):
        env.set_state({**env.get_state(), "core": "other"})


# -- edges ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["1-1", "1-2", "1-4"])
def before_the_flag(request: pytest.FixtureRequest, paths: dict) -> tuple[str, dict, list]:
    """(stage, path, states of 0 to 7 frames before the one in which the flag is touched)."""
    stage = request.param
    env = path_env(stage, paths[stage], frame_skip=1)
    env.reset(options={"noops": 0})
    states: list[tuple[str, dict]] = []
    terminated = False
    frames = iter(n for n in paths[stage]["actions"] for _ in range(paths[stage]["frame_skip"]))
    while not terminated:
        name = next(frames)
        states = [(name, env.get_state()), *states[:7]]
        *_, terminated, _, info = env.step(env.action_names.index(name))
    assert info["flag_get"]
    return stage, paths[stage], states


@needs_fceumm
@pytest.mark.parametrize("frame_skip", [1, 3, 4, 5, 8])
def test_flag_is_never_missed_and_never_a_death(
    before_the_flag: tuple[str, dict, list], frame_skip: int
) -> None:
    """The touch falls on any of the skipped frames; the game is stopped right there."""
    stage, path, states = before_the_flag
    world, number = (int(part) for part in stage.split("-"))
    env = path_env(stage, path, frame_skip=frame_skip, reward=PIXELS_ONLY)
    for lead in range(min(frame_skip, len(states))):
        env.set_state(states[lead][1])
        for name, _state in reversed(states[: lead + 1]):
            _, reward, terminated, truncated, info = env.step(env.action_names.index(name))
            if terminated:
                break
        assert terminated
        assert not truncated
        assert info["flag_get"]
        assert not info["death"]
        assert reward > 900
        assert (info["world"], info["stage"]) == (world, number)


@needs_fceumm
def test_pipes_bring_no_jump_of_reward_and_progress_goes_on(paths: dict) -> None:
    """1-1 through the bonus room: x starts over twice, and the flag comes sooner."""
    path = paths["1-1-bonus"]
    env = path_env("1-1", path, frame_skip=path["frame_skip"], reward=PIXELS_ONLY)
    steps = follow(env, path)
    xs = [info["x_pos"] for *_, info in steps]
    jumps = [abs(b - a) for a, b in itertools.pairwise(xs)]
    assert max(jumps) > 100
    rewards = [reward for reward, terminated, *_ in steps if not terminated]
    assert max(abs(reward) for reward in rewards) <= 5 * path["frame_skip"]
    progress = [info["progress"] for *_, info in steps]
    at = jumps.index(max(jumps))
    # Counted on from where he went in.
    assert abs(progress[at + 1] - progress[at]) <= 5 * path["frame_skip"]
    assert progress[-1] > progress[at]


@needs_fceumm
def test_a_warp_zone_counts_only_if_it_shall(paths: dict) -> None:
    """Over the exit of 1-2 into its warp zone, and through the exit to the flag."""

    def walked(name: str, warp_zones: bool) -> list[dict]:
        path = paths[name]
        reward = RewardTerms(progress=1, clock=0, death=0, flag=0, clip=None, warp_zones=warp_zones)
        # The way into the warp zone was played with fresh jumps, the other without.
        fresh_jumps = name == "1-2-warp-zone"
        env = path_env(
            "1-2", path, frame_skip=path["frame_skip"], fresh_jumps=fresh_jumps, reward=reward
        )
        steps = follow(env, path)
        infos = [info for *_, info in steps]
        assert [info["progress"] for info in infos] == list(
            itertools.accumulate(reward for reward, *_ in steps)
        )
        return infos

    counted, uncounted = walked("1-2-warp-zone", True), walked("1-2-warp-zone", False)
    assert [info["x_pos"] for info in counted] == [info["x_pos"] for info in uncounted]
    assert counted[-1]["x_pos"] >= 3040
    # The exit's pipe begins at x 2,656; Mario starts at 40.
    ends_at = 40 + uncounted[-1]["progress"]
    assert 2600 < ends_at < 2656
    for with_zone, without in zip(counted, uncounted, strict=True):
        assert without["progress"] == min(with_zone["progress"], uncounted[-1]["progress"])
    # The way to the flag is worth the same, but for the last pixels before the pipe.
    out, out_uncounted = walked("1-2", True)[-1], walked("1-2", False)[-1]
    assert out["flag_get"]
    assert 0 <= out["progress"] - out_uncounted["progress"] <= 30


def test_going_back_in_a_maze_is_not_paid_twice() -> None:
    """7-4 sends Mario back when he takes a wrong way; here his page is set back by hand."""
    env = MarioEnv("7-4", actions=["right+B", "NOOP"], frame_skip=1, reward=PIXELS_ONLY)
    env.reset()
    for _ in range(40):
        env.step(0)
    walked = env.get_state()["progress"][2]
    assert walked > 20
    ram = env.core.ram()
    back = game.x_pos(ram) - 60
    env.core.poke(0x6D, back // 256)
    env.core.poke(0x86, back % 256)
    rewards = [env.step(0)[1] for _ in range(10)]
    assert sum(rewards) == 0
    assert env.get_state()["progress"][2] == walked


def test_a_vine_is_no_flag(core_name: str) -> None:
    """Climbing the vine of 4-2 sets the float state of a flagpole."""
    env = MarioEnv("4-2", core=core_name, actions=["NOOP"], frame_skip=1)
    env.reset()
    env.core.poke(game.FLOAT_STATE, 3)
    ram = bytes(env.core.ram())
    assert ram[game.FLOAT_STATE] == 3
    assert not game.is_clear(ram)
    pole = bytearray(ram)
    pole[0x16] = 0x31
    assert game.is_clear(bytes(pole))
    _, _, terminated, _, info = env.step(0)
    assert not terminated
    assert not info["flag_get"]
