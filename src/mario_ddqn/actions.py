"""Button combinations: what each action of the agent presses.

Buttons are one byte, bit by bit in the order the NES shifts them out of its
controller: A, B, select, start, up, down, left, right.
"""

from __future__ import annotations

from collections.abc import Sequence

from mario_ddqn.errors import UserError

BUTTONS = {
    "NOOP": 0,
    "A": 1,
    "B": 2,
    "select": 4,
    "start": 8,
    "up": 16,
    "down": 32,
    "left": 64,
    "right": 128,
}
NOOP = 0
START = BUTTONS["start"]
A = BUTTONS["A"]

_WALK = ["NOOP", "right", "right+A", "right+B", "right+A+B"]
_BOTH_WAYS = [*_WALK, "A", "left"]

# right_only, simple and complex as in gym_super_mario_bros.actions; tutorial is
# the pair of the PyTorch tutorial "Train a Mario-playing RL Agent".
ACTION_SETS: dict[str, list[str]] = {
    "tutorial": ["right", "right+A"],
    "right_only": _WALK,
    "simple": _BOTH_WAYS,
    "complex": [*_BOTH_WAYS, "left+A", "left+B", "left+A+B", "down", "up"],
}


def action_names(actions: str | Sequence[str]) -> list[str]:
    """Names such as `right+A` of a named set, or of a list given by the user.

    Raises:
        UserError: the set or a button is unknown, or the list is empty or repeats itself.
    """
    if isinstance(actions, str):
        if actions not in ACTION_SETS:
            known = ", ".join(ACTION_SETS)
            raise UserError(f"unknown action set {actions!r}; known are {known}, or give a list")
        return ACTION_SETS[actions]
    names = list(actions)
    if not names:
        raise UserError("the list of actions is empty; give at least one, for example [right]")
    seen: dict[int, str] = {}
    for name in names:
        byte = button_byte(name)
        if byte in seen:
            raise UserError(f"the actions {seen[byte]!r} and {name!r} press the same buttons")
        seen[byte] = name
    return names


def button_byte(name: str) -> int:
    """The controller byte of a combination such as `right+A` (see `BUTTONS`)."""
    byte = 0
    for button in name.split("+"):
        if button not in BUTTONS:
            raise UserError(f"unknown button {button!r} in {name!r}; known: {', '.join(BUTTONS)}")
        byte |= BUTTONS[button]
    return byte
