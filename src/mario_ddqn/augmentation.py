"""Random changes of observations that leave what they mean as it is."""

from __future__ import annotations

import torch


def random_shift(observations: torch.Tensor, pixels: int) -> torch.Tensor:
    """Moves each observation by -pixels..pixels in both directions, its edge repeated.

    uint8 [batch, stack, height, width] to the same; the frames of a stack move
    together. Kostrikov et al. 2021 (DrQ), section 3.1: pad and crop.
    """
    batch, stack, height, width = observations.shape
    device = observations.device
    offsets = torch.randint(-pixels, pixels + 1, (2, batch, 1), device=device)
    rows = (torch.arange(height, device=device) + offsets[0]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=device) + offsets[1]).clamp_(0, width - 1)
    index = (rows[:, :, None] * width + columns[:, None, :]).view(batch, 1, -1)
    flat = observations.reshape(batch, stack, -1)
    return flat.gather(2, index.expand(-1, stack, -1)).view_as(observations)
