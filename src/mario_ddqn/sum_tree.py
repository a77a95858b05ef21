"""Sums over priorities, for draws in proportion to them."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Values of `size` leaves in a binary tree of sums (Schaul et al. 2016, appendix B.2.1).

    A change or a draw of n leaves costs n log2(size) steps, all n at once in numpy.
    Every node is the sum of its two children, so that the tree depends on the
    leaves alone and not on the order of the changes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._depth = max(1, (size - 1).bit_length())
        self._first = 1 << self._depth
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._nodes[1])

    @property
    def leaves(self) -> np.ndarray:
        """float64 [size], a view to be read only."""
        return self._nodes[self._first : self._first + self.size]

    def set(self, leaves: np.ndarray, values: np.ndarray) -> None:
        """Gives leaves (int64) values (at least 0); of a leaf named twice one of the values."""
        nodes = self._nodes
        at = np.asarray(leaves) + self._first
        nodes[at] = values
        for _ in range(self._depth):
            at = np.unique(at >> 1)
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1]

    def find(self, sums: np.ndarray) -> np.ndarray:
        """The leaves (int64) in which the running sum of the leaves exceeds `sums`.

        `sums` are float64, at least 0 and below `total`.
        """
        rest = np.array(sums, np.float64)
        at = np.ones(len(rest), np.int64)
        for _ in range(self._depth):
            at *= 2
            left = self._nodes[at]
            right = rest >= left
            rest -= np.where(right, left, 0)
            at += right
        return at - self._first
