"""Random shifts, against shifts made by hand."""

from __future__ import annotations

import numpy as np
import torch

from mario_ddqn.augmentation import random_shift


def shifted(picture: np.ndarray, down: int, right: int) -> np.ndarray:
    """The window of a padded picture whose corner lies at (down, right)."""
    height, width = picture.shape[-2:]
    padded = np.pad(picture, ((0, 0), (2, 2), (2, 2)), mode="edge")
    return padded[:, 2 + down : 2 + down + height, 2 + right : 2 + right + width]


def test_each_observation_is_one_of_its_shifts_and_all_occur() -> None:
    torch.manual_seed(0)
    picture = np.random.default_rng(0).integers(0, 256, (3, 6, 5), np.uint8)
    batch = torch.from_numpy(picture).expand(400, -1, -1, -1)
    result = random_shift(batch, 2).numpy()
    assert result.dtype == np.uint8
    wanted = {
        shifted(picture, down, right).tobytes(): 0
        for down in range(-2, 3)
        for right in range(-2, 3)
    }
    assert len(wanted) == 25
    for observation in result:
        wanted[observation.tobytes()] += 1
    assert min(wanted.values()) > 0


def test_no_pixels_is_no_change() -> None:
    batch = torch.randint(0, 256, (2, 4, 8, 8), dtype=torch.uint8)
    assert torch.equal(random_shift(batch, 0), batch)
