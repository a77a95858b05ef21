"""Button combinations."""

from __future__ import annotations

import pytest
from gym_super_mario_bros import actions as reference

from mario_ddqn.actions import action_names, button_byte
from mario_ddqn.errors import UserError


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("right_only", reference.RIGHT_ONLY),
        ("simple", reference.SIMPLE_MOVEMENT),
        ("complex", reference.COMPLEX_MOVEMENT),
    ],
)
def test_sets_are_those_of_gym_super_mario_bros(name: str, theirs: list) -> None:
    assert action_names(name) == ["+".join(combination) for combination in theirs]


def test_tutorial_set_and_own_list() -> None:
    assert action_names("tutorial") == ["right", "right+A"]
    assert action_names(["B", "left+down"]) == ["B", "left+down"]
    assert button_byte("right+A") == 0b1000_0001
    assert button_byte("NOOP") == 0


@pytest.mark.parametrize("wrong", ["walk", ["right", "right"], ["A+B", "B+A"], ["fly"], []])
def test_wrong_sets(wrong) -> None:
    with pytest.raises(UserError):
        action_names(wrong)
