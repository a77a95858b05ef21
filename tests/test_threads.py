"""The learner's threads: all cores while the actors wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mario_ddqn.profile import ACTOR_PARTS
from mario_ddqn.threads import LearnerThreads


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def seconds(wait: float, work: float) -> np.ndarray:
    spent = np.zeros(len(ACTOR_PARTS))
    spent[ACTOR_PARTS.index("wait")] = wait
    spent[ACTOR_PARTS.index("environment")] = work
    return spent


def test_cores_of_waiting_actors_are_taken_and_given_back() -> None:
    threads = LearnerThreads(cores=2, actors=1)
    assert torch.get_num_threads() == 1
    threads.adjust([seconds(7, 3)])
    assert torch.get_num_threads() == 2
    # Since then 5 s more of waiting and 5 of work: neither much nor little.
    threads.adjust([seconds(12, 8)])
    assert torch.get_num_threads() == 2
    threads.adjust([seconds(13, 17)])
    assert torch.get_num_threads() == 1
    threads.adjust([seconds(13, 17)])
    assert torch.get_num_threads() == 1


def test_one_core_is_one_thread() -> None:
    LearnerThreads(cores=1, actors=1).adjust([seconds(9, 1)])
    assert torch.get_num_threads() == 1
