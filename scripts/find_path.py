"""Finds ways to the flag by archive search, and writes the buttons down.

    python scripts/find_path.py 1-1 1-2 --out tests/data/paths.json

The tests play these paths to reach flags, pipes and castles on the real game.
With `--bonus` the way leads through a pipe into a bonus room and back out, and
is kept under the stage's name with `-bonus` behind it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mario_ddqn.env import MarioEnv
from mario_ddqn.search import ArchiveSearch

_FRAME_SKIP = 4
_CHUNK_STEPS = 5000
# Where the pipe of 1-1 is, and how much of the way its bonus room cuts off, in pixels.
_PIPE_AT = 1000
_CUT_OFF = 500


def _out_of_bonus(info: dict[str, Any]) -> bool:
    return bool(info["x_pos"] - info["progress"] > _CUT_OFF)


def _past_the_pipe(info: dict[str, Any]) -> bool:
    return bool(info["x_pos"] > _PIPE_AT and info["x_pos"] - info["progress"] < _CUT_OFF)


def main() -> int:
    """Searches the stages one after the other; keeps what the file already has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", metavar="W-S")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to add to")
    parser.add_argument("--actions", default="simple", help="action set (default: simple)")
    parser.add_argument("--bonus", action="store_true", help="search a way through a bonus room")
    parser.add_argument("--core", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=500_000)
    options = parser.parse_args()
    for stage in options.stages:
        env = MarioEnv(stage, core=options.core, actions=options.actions, frame_skip=_FRAME_SKIP)
        began = time.monotonic()
        rules = {"goal": _out_of_bonus, "avoid": _past_the_pipe} if options.bonus else {}
        search = ArchiveSearch(env, np.random.default_rng(options.seed), **rules)
        found = None
        while found is None and search.steps < options.max_steps:
            found = search.run(min(options.max_steps, search.steps + _CHUNK_STEPS))
            print(stage, search.steps, search.cells, search.furthest, flush=True)
        env.close()
        if found is None:
            print(f"{stage}: no way found in {options.max_steps:,} steps", file=sys.stderr)
            continue
        paths = json.loads(options.out.read_text()) if options.out.exists() else {}
        paths[f"{stage}-bonus" if options.bonus else stage] = {
            "core": env.core.name,
            "frame_skip": _FRAME_SKIP,
            "search_steps": search.steps,
            "actions": [env.action_names[action] for action in found],
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(paths, indent=None) + "\n")
        print(
            f"{stage}: flag after {search.steps:,} steps, {search.cells} cells, "
            f"{time.monotonic() - began:.0f} s; the way takes {len(found)} steps"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
