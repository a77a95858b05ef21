"""What the bytes of the game's work RAM mean.

Source: Data Crystal's RAM map of Super Mario Bros., the same that
gym-super-mario-bros reads. All functions take the 2 KiB of work RAM as an
indexable of ints (bytes or a uint8 array) and return Python ints.
"""

from __future__ import annotations

from typing import Protocol


class Ram(Protocol):
    """2,048 bytes of NES work RAM."""

    def __getitem__(self, address: int, /) -> int: ...


PLAYER_STATE = 0x000E
FLOAT_STATE = 0x001D
WORLD = 0x075F
STAGE = 0x075C
AREA = 0x0760
AREA_POINTER = 0x0750
LIFE = 0x075A
GAME_MODE = 0x0770
PRELEVEL_TIMER = 0x07A0
AREA_CHANGE_TIMER = 0x06DE
X_PAGE, X_PIXEL = 0x006D, 0x0086
_Y_PIXEL, Y_VIEWPORT = 0x03B8, 0x00B5
_STATUS = 0x0756
ENEMY_TYPES = range(0x0016, 0x001B)
# Above 0 from the moment on at which Mario has passed over the exit of 1-2 or 4-2
# (WarpZoneControl in doppelganger's disassembly); a new area sets it back.
WARP_ZONE = 0x06D6
# Three digits, hundreds first.
CLOCK = 0x07F8

PLAYER_DEAD = 0x06
PLAYER_DYING = 0x0B
PLAYER_NORMAL = 0x08
# Climbing, entering a pipe, walking by itself, entering an area: no control.
_PLAYER_BUSY = frozenset((0, 1, 2, 3, 4, 5, 7))
FLOAT_ON_POLE = 3
# Bowser and the flagpole: with one of them present, float state 3 ends the
# stage. Without, it is a vine (4-2), which sets the same float state.
FLAGPOLE = 0x31
_STAGE_END_ENEMIES = frozenset((0x2D, FLAGPOLE))
MODE_PLAYING = 1
_MODE_END_OF_WORLD = 2
_LIFE_GAME_OVER = 0xFF


def x_pos(ram: Ram) -> int:
    """Mario's x in the area, pixels from its left edge."""
    return ram[X_PAGE] * 256 + ram[X_PIXEL]


def y_pos(ram: Ram) -> int:
    """Mario's height above the bottom of the screen, pixels (as gym-super-mario-bros)."""
    above = 255 - ram[_Y_PIXEL]
    return 255 + above if ram[Y_VIEWPORT] < 1 else above


def time_left(ram: Ram) -> int:
    """The game's clock, in its own ticks (24 frames each)."""
    return ram[CLOCK] * 100 + ram[CLOCK + 1] * 10 + ram[CLOCK + 2]


def clock_digits(ram: Ram) -> bytes:
    """The clock's digits, for telling whether it has moved."""
    return bytes((ram[CLOCK], ram[CLOCK + 1], ram[CLOCK + 2]))


def score(ram: Ram) -> int:
    """The score, 0 to 999,990: six digits of tens, as gym-super-mario-bros reads them."""
    value = 0
    for address in range(0x7DE, 0x7E4):
        value = value * 10 + ram[address]
    return value


def coins(ram: Ram) -> int:
    """Coins held, 0 to 99."""
    return ram[0x7ED] * 10 + ram[0x7EE]


def status(ram: Ram) -> str:
    """`small`, `tall` or `fireball`."""
    return ("small", "tall")[ram[_STATUS]] if ram[_STATUS] < 2 else "fireball"


def area_key(ram: Ram) -> tuple[int, int, int, int, int]:
    """Names the coordinate system x is counted in: it changes with the area and the life."""
    return (ram[WORLD], ram[STAGE], ram[AREA], ram[AREA_POINTER], ram[LIFE])


def is_uneventful(ram: Ram) -> bool:
    """Mario is under control, alive and at no pole or vine: one look for nearly every frame.

    Implies that `is_dying`, `is_dead`, `is_busy`, `is_world_over` and `is_clear`
    are false, and that no area is about to change.
    """
    return (
        ram[PLAYER_STATE] == PLAYER_NORMAL
        and ram[FLOAT_STATE] != FLOAT_ON_POLE
        and ram[Y_VIEWPORT] <= 1
        and ram[GAME_MODE] == MODE_PLAYING
        and ram[AREA_CHANGE_TIMER] <= 1
    )


def is_dying(ram: Ram) -> bool:
    """The death animation runs, or Mario has fallen below the screen."""
    return ram[PLAYER_STATE] == PLAYER_DYING or ram[Y_VIEWPORT] > 1


def is_dead(ram: Ram) -> bool:
    """The game has taken note of the death."""
    return ram[PLAYER_STATE] == PLAYER_DEAD


def is_game_over(ram: Ram) -> bool:
    """No life is left."""
    return ram[LIFE] == _LIFE_GAME_OVER


def is_warp_zone(ram: Ram) -> bool:
    """A warp zone lies ahead or around: from here to the right, no way leads to the flag."""
    return ram[WARP_ZONE] != 0


def is_standing(ram: Ram) -> bool:
    """Mario is on the ground (or on something)."""
    return ram[FLOAT_STATE] == 0


def is_busy(ram: Ram) -> bool:
    """The game moves Mario itself; buttons do nothing."""
    return ram[PLAYER_STATE] in _PLAYER_BUSY


def is_world_over(ram: Ram) -> bool:
    """The axe is reached and the end of the world plays."""
    return ram[GAME_MODE] == _MODE_END_OF_WORLD


def is_clear(ram: Ram) -> bool:
    """The flag is touched or the axe reached."""
    if is_world_over(ram):
        return True
    if ram[FLOAT_STATE] != FLOAT_ON_POLE:
        return False
    return any(ram[address] in _STAGE_END_ENEMIES for address in ENEMY_TYPES)
