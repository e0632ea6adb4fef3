"""The only place that touches torch's private modules, guarded by version.

In: nothing. Out: `capture_context`, the patches under which `torch.onnx.export` captures a model,
so that a capture of ours gives the graph of the public call.

`torch.onnx.export` captures anew for each opset. Capturing once needs its two patches: recurrent
layers over a dynamic sequence become a loop, and a size of 0 or 1 is not told apart from others.
A torch outside the guard captures without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

#: The minor versions whose private modules were looked at.
_KNOWN = ((2, 13),)


def is_known_torch() -> bool:
    """Whether the private modules of the installed torch are the ones this module knows."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) in _KNOWN


@contextmanager
def capture_context(*, dynamic: bool) -> Iterator[None]:
    """The patches of the public export around a capture; `dynamic`: some axis is dynamic."""
    with ExitStack() as patches:
        if is_known_torch():
            from torch.fx.experimental import _config

            # torch gives its configuration modules a `patch` that their types do not show.
            patched = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
            patches.enter_context(patched)
            if dynamic:
                from torch.export import _patches

                patches.enter_context(_patches.register_lstm_while_loop_decomposition())
                patches.enter_context(_patches.register_gru_while_loop_decomposition())
        yield
