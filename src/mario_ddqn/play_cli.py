"""The command mario-play."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mario_ddqn.command import run_command
from mario_ddqn.errors import UserError

if TYPE_CHECKING:
    from mario_ddqn.env import MarioEnv
    from mario_ddqn.evaluate import Outcome
    from mario_ddqn.video import VideoWriter

# Frames shown after the end: the slide down the flagpole, or the fall.
_EPILOGUE = 120
_EPILOG = """\
Episodes start after 0 to 30 frames without buttons, drawn with --seed, and are
played greedily unless --epsilon is given. A clear is a flag or an axe reached.
Videos show every frame of the game, 60 a second (gif: 30).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and plays; returns the exit code."""
    return run_command("mario-play", _play, _parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mario-play",
        description="Watch a trained Mario: play episodes, print how they end, record videos.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        metavar="PATH",
        help="a .chkpt file, or a run folder (its best, else newest checkpoint)",
    )
    parser.add_argument("--episodes", type=_positive, default=1, metavar="N", help="default 1")
    parser.add_argument(
        "--best-of",
        type=_positive,
        metavar="N",
        help="play N episodes and keep the video of the best one",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="an .mp4 or .gif file for all episodes, or a folder for one mp4 each "
        "(default: videos/ beside the checkpoint)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file of --out")
    parser.add_argument("--stage", metavar="W-S", help="another stage than it was trained on")
    parser.add_argument("--core", help="another core: auto, fceumm or nes-py")
    parser.add_argument(
        "--epsilon", type=_share, default=0.0, metavar="P", help="share of random actions, 0 to 1"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the no-op starts")
    parser.add_argument("--scale", type=_positive, default=2, metavar="N", help="pixels a pixel")
    parser.add_argument("--no-video", action="store_true", help="only play and count")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of lines"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text!r}; expected a whole number of at least 1")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"is {text!r}; expected a number from 0 to 1")
    return value


def _play(options: argparse.Namespace) -> None:
    # Here, so that --help needs no torch.
    from mario_ddqn.config_file import with_overrides
    from mario_ddqn.evaluate import Rules, play, summary
    from mario_ddqn.policy import load_policy
    from mario_ddqn.wrappers import make_env

    policy = load_policy(options.checkpoint)
    # Mario has the time that the game gives him.
    changes = ["env.stall_steps=null", "env.max_steps=null", *_changes(options)]
    env_config = with_overrides(policy.config, changes, str(policy.checkpoint)).env
    env = make_env(env_config)
    game: MarioEnv = env.unwrapped  # type: ignore[assignment]
    recorder = _Recorder(options, game, policy.checkpoint, env_config.stage)
    outcomes: list[Outcome] = []
    episodes = options.best_of or options.episodes
    if not options.json:
        print(
            f"{policy.checkpoint} after {policy.steps:,} steps, stage {env_config.stage} "
            f"on {game.core.name}"
        )
    try:
        recorder.begin()
        rules = Rules(seed=options.seed, epsilon=options.epsilon)
        for outcome in play(policy.greedy_actions, env, rules, episodes):
            outcomes.append(outcome)
            if not options.json:
                print(_line(outcome), flush=True)
            recorder.end(outcome, last=outcome.episode == episodes)
    except BaseException:
        recorder.discard()
        raise
    finally:
        env.close()
    result = summary(outcomes)
    videos = [str(path) for path in recorder.videos]
    if options.json:
        about = {
            "checkpoint": str(policy.checkpoint),
            "stage": env_config.stage,
            "core": game.core.name,
            "seed": options.seed,
            "epsilon": options.epsilon,
        }
        print(json.dumps({**about, **result, "videos": videos}))
        return
    low, high = result["clear_rate_interval"]
    print(
        f"clear rate {result['clears']}/{len(outcomes)} = {result['clear_rate']:.1%} "
        f"(95% interval {low:.1%} to {high:.1%}), mean x {result['mean_x']:.0f}"
    )
    for video in videos:
        print(f"video: {video}")


def _changes(options: argparse.Namespace) -> list[str]:
    named = [("env.stage", options.stage), ("env.core", options.core)]
    return [f"{key}={value}" for key, value in named if value is not None]


def _line(outcome: Outcome) -> str:
    end = "FLAG" if outcome.flag else "lost"
    return (
        f"episode {outcome.episode:3d}: {end}  x {outcome.x:5d}  time left {outcome.time_left:3d}  "
        f"score {outcome.score:6d}  {outcome.steps} steps"
    )


class _Recorder:
    """Which frames go into which file."""

    def __init__(
        self, options: argparse.Namespace, game: MarioEnv, checkpoint: Path, stage: str
    ) -> None:
        self.videos: list[Path] = []
        self._options = options
        self._game = game
        self._best: tuple[bool, int, int] | None = None
        self._best_video: Path | None = None
        self._writer: VideoWriter | None = None
        out: Path | None = options.out
        self._one_file = out if out is not None and out.suffix else None
        if self._one_file is not None and self._one_file.exists() and not options.force:
            raise UserError(f"{self._one_file}: exists; give another --out, or --force")
        folder = out if out is not None and self._one_file is None else None
        self._folder = folder or checkpoint.parent / "videos"
        self._stem = f"{checkpoint.stem}-{stage}"

    def begin(self) -> None:
        """Opens a video and has every frame put into it."""
        if self._options.no_video:
            return
        from mario_ddqn.video import VideoWriter

        single = self._one_file is not None and self._options.best_of is None
        path = self._one_file if single and self._one_file else self._free_name()
        self._writer = VideoWriter(path, scale=self._options.scale)
        self._game.on_frame = self._writer.add

    def end(self, outcome: Outcome, *, last: bool) -> None:
        """An episode is over: shows a little of what follows, keeps or drops the video."""
        if self._writer is None:
            return
        self._game.idle(_EPILOGUE)
        if self._one_file is not None and self._options.best_of is None:
            if last:
                self.videos.append(self._writer.finish())
            return
        if self._options.best_of is None:
            self.videos.append(self._writer.finish())
        else:
            self._keep_if_better(self._writer, outcome)
            if last and self._best_video is not None:
                self.videos.append(self._named(self._best_video))
        if not last:
            self.begin()

    def discard(self) -> None:
        """Something went wrong: no half videos."""
        if self._writer is not None:
            self._writer.discard()

    def _keep_if_better(self, writer: VideoWriter, outcome: Outcome) -> None:
        worth = (outcome.flag, outcome.x, -outcome.steps)
        if self._best is not None and worth <= self._best:
            writer.discard()
            return
        if self._best_video is not None:
            self._best_video.unlink(missing_ok=True)
        self._best, self._best_video = worth, writer.finish()

    def _named(self, video: Path) -> Path:
        if self._one_file is None:
            return video
        self._one_file.parent.mkdir(parents=True, exist_ok=True)
        return video.replace(self._one_file)

    def _free_name(self) -> Path:
        suffix = self._one_file.suffix if self._one_file else ".mp4"
        folder = self._one_file.parent if self._one_file else self._folder
        number = 1
        while (path := folder / f"{self._stem}-{number:03d}{suffix}").exists():
            number += 1
        return path


if __name__ == "__main__":
    sys.exit(main())
