"""How many threads the learner computes with, beside actors that need cores too."""

from __future__ import annotations

import numpy as np
import torch

from mario_ddqn.profile import ACTOR_PARTS

_WAIT = ACTOR_PARTS.index("wait")
# Share of their time that actors wait for the learner: above the first it takes
# their cores too, below the second it gives them back.
_TAKE_ABOVE = 0.6
_GIVE_BACK_BELOW = 0.3


class LearnerThreads:
    """All cores while the actors mostly wait, else those that they leave.

    Where updates are dear the actors wait, and their cores would stand idle;
    where acting is dear, a thread of the learner on an actor's core would hold
    up both.
    """

    def __init__(self, cores: int, actors: int) -> None:
        self._all = cores
        self._left = max(1, cores - actors)
        self._seen = np.zeros(len(ACTOR_PARTS))
        torch.set_num_threads(self._left)

    def adjust(self, actor_seconds: list[np.ndarray]) -> None:
        """Looks at where the actors' time has gone since the last call."""
        total = np.sum(actor_seconds, axis=0)
        spent, self._seen = total - self._seen, total
        if self._all == self._left or spent.sum() <= 0:
            return
        waited = spent[_WAIT] / spent.sum()
        if waited > _TAKE_ABOVE:
            torch.set_num_threads(self._all)
        elif waited < _GIVE_BACK_BELOW:
            torch.set_num_threads(self._left)
