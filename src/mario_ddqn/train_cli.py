"""The command mario-train."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mario_ddqn.command import run_command
from mario_ddqn.errors import UserError
from mario_ddqn.signals import StopRequest

_EPILOG = """\
Ctrl-C (or SIGTERM) saves a checkpoint and ends with exit code 0; a second one
ends at once. Exit code 2: something in the command, the configuration or the
machine must be mended; the message says what.

A run's folder holds config.yaml, checkpoints (*.chkpt), the replay memory
(replay/), metrics.csv, flags.jsonl, tensorboard/ and videos/. On disk the
memory takes a tenth of replay.maxlen x 7 KB as a rule, never more than that and
two segments a lane; checkpoints are the newest three (checkpoint.keep), the best
and the first with a flag, 16 MB each with configs/ddqn.yaml.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and trains; returns the exit code."""
    return run_command("mario-train", _run, _parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mario-train",
        description="Teach a DDQN agent to play Super Mario Bros.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="start a run: a YAML file")
    source.add_argument(
        "--resume", type=Path, metavar="PATH", help="go on with a run: its folder, or a .chkpt file"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change any key of the configuration, e.g. agent.gamma=0.95 (may be repeated)",
    )
    parser.add_argument("--stage", metavar="W-S", help="1-1 to 8-4, or game (env.stage)")
    parser.add_argument("--seed", metavar="N", help="seed of all random numbers (seed)")
    parser.add_argument("--device", metavar="NAME", help="auto, cpu, cuda or mps (device)")
    parser.add_argument("--steps", metavar="N", help="agent steps in all (train.steps)")
    parser.add_argument("--name", metavar="NAME", help="folder of the run (name)")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("checkpoints"),
        metavar="FOLDER",
        help="where run folders are made (default: checkpoints)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="tell at the end where the seconds went (log.profile)",
    )
    parser.add_argument("--version", action="version", version=_version())
    return parser


def _version() -> str:
    from mario_ddqn import __version__

    return f"mario-train {__version__}"


def _overrides(options: argparse.Namespace) -> list[str]:
    """--set first, so that the options of their own win."""
    keys = {"stage": "env.stage", "seed": "seed", "device": "device", "steps": "train.steps"}
    named = [
        f"{key}={getattr(options, option)}"
        for option, key in {**keys, "name": "name"}.items()
        if getattr(options, option) is not None
    ]
    return [*options.set, *named, *(["log.profile=true"] if options.profile else [])]


def _run(options: argparse.Namespace) -> None:
    # Here, so that --help needs no torch.
    from mario_ddqn.config_file import load_config
    from mario_ddqn.run import resume, run_folder, start

    overrides = _overrides(options)
    with StopRequest() as stop:
        if options.resume is not None:
            if options.name is not None:
                raise UserError("--name: a resumed run keeps its folder; leave it out")
            resume(options.resume, overrides, lambda: stop.requested)
            return
        config = load_config(options.config, overrides)
        folder = run_folder(options.runs, config, options.config.stem)
        start(config, folder, lambda: stop.requested)


if __name__ == "__main__":
    sys.exit(main())
