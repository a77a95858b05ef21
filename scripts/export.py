"""Makes a small file of a checkpoint, to be given away: the weights to play with, and no more.

python scripts/export.py checkpoints/ddqn-1-1 checkpoints/pretrained/1-1.chkpt
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mario_ddqn.checkpoint import find_checkpoint, write_checkpoint
from mario_ddqn.config_file import dump_config, parse_config
from mario_ddqn.errors import UserError

_KEPT = ("version", "steps", "episodes", "exploration_rate", "seconds")


def main() -> int:
    """Exports; exit code 2 if the source is no checkpoint or the file exists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a file, or a run folder (its best)")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="play it by another configuration than it was trained by",
    )
    parser.add_argument("--force", action="store_true", help="overwrite")
    options = parser.parse_args()
    try:
        if options.out.exists() and not options.force:
            raise UserError(f"{options.out}: exists; give another name, or --force")
        source, payload, _ = find_checkpoint(options.checkpoint, prefer_best=True)
        config = parse_config(payload["config"], str(source), options.set)
    except UserError as error:
        print(f"export: {error}", file=sys.stderr)
        return 2
    weights = payload["agent"]["average"] or payload["agent"]["model"]
    content = {key: payload[key] for key in _KEPT} | {"config": dump_config(config)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(options.out, {**content, "agent": {"model": weights}})
    print(f"{source} -> {options.out}, {options.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
