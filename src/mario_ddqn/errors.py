"""The one exception a user is meant to see."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend: bad configuration, a missing package, a broken file.

    The message is one line that says what is wrong, where, and what to do. The
    command-line programs print it without a traceback and exit with code 2.
    """
