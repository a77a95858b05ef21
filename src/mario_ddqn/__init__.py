"""mario-train: a DDQN agent that learns Super Mario Bros."""

from importlib.metadata import version

import gymnasium

__version__ = version("mario-train")

# gymnasium.make("mario_ddqn:Mario-v0", stage="1-2", actions="simple")
gymnasium.register(id="Mario-v0", entry_point="mario_ddqn.env:MarioEnv")
