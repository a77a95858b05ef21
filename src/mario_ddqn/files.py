"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".tmp"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends without an error.

    It is written beside `path`, flushed to the disk and renamed, so that a
    crash or a full disk at any moment leaves the old file or the new one.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """`data` becomes the content of `path`, see `replacing`."""
    with replacing(path) as file:
        file.write(data)


def remove_leftovers(folder: Path) -> None:
    """Deletes temporary files that a killed process left in `folder`."""
    for path in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


def rewrite_lines(path: Path, keep: Callable[[str], bool]) -> None:
    """Keeps the lines of a text file for which `keep` is true; a missing file stays missing."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomically(path, "".join(filter(keep, lines)).encode())


def _sync_folder(folder: Path) -> None:
    """Makes a rename last; Windows can't open folders and needs none of it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
