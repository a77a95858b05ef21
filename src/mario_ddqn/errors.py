"""The one exception a user is meant to see."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend: bad configuration, a missing package, a broken file.

    The message is one line (line breaks in it become spaces) that says what is
    wrong, where, and what to do. The command-line programs print it without a
    traceback and exit with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))
