"""One thread for PyTorch in each worker.

Workers share the cores, sums are the same on every machine, and a fork has no copy of the threads
of a pool. So a model cannot change the number.
"""

from __future__ import annotations

import torch


def keep_one_thread() -> None:
    """Use one thread from now on; `torch.set_num_threads` has no effect after this call."""
    torch.set_num_threads(1)
    torch.set_num_threads = _ignore_number
    torch.set_num_interop_threads = _ignore_number


def _ignore_number(nthreads: int) -> None:
    """Accept a number of threads without effect."""
