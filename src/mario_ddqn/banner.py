"""What a run says of itself as it starts: what runs where, and how to watch and stop it."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from mario_ddqn import __version__
from mario_ddqn.actions import action_names
from mario_ddqn.agent import DDQNAgent
from mario_ddqn.config import Config
from mario_ddqn.plan import Plan
from mario_ddqn.sizing import GB


def banner(config: Config, folder: Path, agent: DDQNAgent, plan: Plan) -> list[str]:
    """Its lines."""
    weights = sum(parameter.numel() for parameter in agent.online.parameters())
    actions = action_names(config.env.actions)
    lanes = config.train.lanes
    where = (
        f"in each of {plan.actors} actor process{'es' * (plan.actors > 1)}"
        if plan.actors
        else "in one process"
    )
    memory = "GPU memory" if plan.replay.device == "cuda" else "RAM"
    size = f"{plan.replay.size_bytes / GB:.2f} GB of {memory}"
    return [
        f"mario-train {__version__}, Python {platform.python_version()}, torch {torch.__version__}",
        f"game     {config.env.stage} on {plan.core}, {lanes} lane{'s' * (lanes > 1)} {where}, "
        f"actions {', '.join(actions)}",
        f"network  {weights:,} weights on {agent.device}, {torch.get_num_threads()} threads",
        f"replay   {plan.replay.maxlen:,} transitions, {size}",
        f"folder   {folder}",
        f"watch    mario-play --checkpoint {folder}   (a video, at any time)",
        f"curves   tensorboard --logdir {folder}",
        f"stop     Ctrl-C saves and ends; go on with: mario-train --resume {folder}",
    ]
