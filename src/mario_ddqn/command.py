"""What both commands do with what goes wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mario_ddqn.errors import UserError


def run_command(
    name: str, body: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> int:
    """Runs a command's body and returns its exit code.

    0: done; 2: the user must mend something, told in one line; 130: Ctrl-C.
    """
    try:
        body(options)
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"{name}: {where}{error.strerror or error}; mend it, or use another place",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(f"{name}: stopped at once; what was saved before is good", file=sys.stderr)
        return 130
    return 0
