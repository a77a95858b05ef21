"""Random generators that can be saved: NumPy's state holds integers of 128 bits, so as JSON."""

from __future__ import annotations

import json

import numpy as np


def get_random(generator: np.random.Generator) -> str:
    """The generator's state."""
    return json.dumps(generator.bit_generator.state)


def set_random(generator: np.random.Generator, state: str) -> None:
    """Puts the generator back where `get_random` found it."""
    generator.bit_generator.state = json.loads(state)
