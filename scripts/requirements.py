"""Prints the dependencies of pyproject.toml, some left out: for an environment without torch.

python scripts/requirements.py --without torch tensorboard
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path


def main() -> None:
    """One requirement a line, markers and all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", nargs="*", default=[], metavar="PACKAGE")
    options = parser.parse_args()
    project = Path(__file__).parent.parent / "pyproject.toml"
    for requirement in tomllib.loads(project.read_text())["project"]["dependencies"]:
        if re.split(r"[<>=!; \[]", requirement)[0] not in options.without:
            print(requirement)


if __name__ == "__main__":
    main()
