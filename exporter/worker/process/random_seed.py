"""The seed of all random generators that a model may use: Python's, numpy's and torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

#: numpy accepts 32 bits.
_NUMPY_SEEDS = 1 << 32


def seed_generators(seed: int) -> None:
    """Set the seed of the global generators."""
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)
    torch.manual_seed(seed)


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Set the seed of the global generators, and restore their states at the end."""
    state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=()):
        seed_generators(seed)
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)
