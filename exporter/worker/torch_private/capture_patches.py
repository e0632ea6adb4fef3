"""The only place that touches torch's private modules, guarded by version.

In: nothing. Out: `patch_capture`, the patches under which `torch.onnx.export` captures a model,
so that a capture of ours gives the graph of the public call; and `Decompositions`, which keeps
what the public call would compute anew for each opset.

`torch.onnx.export` captures and decomposes for every opset. Capturing once needs its patches:
recurrent layers over a dynamic sequence become a loop, a size of 0 or 1 is not told apart from
others, and `torch.onnx.is_in_onnx_export()` is true. A torch outside the guard captures without
them and decomposes each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from exporter.worker.torch_private.versions import is_known_torch


@contextmanager
def patch_capture(*, dynamic: bool) -> Iterator[None]:
    """The patches of the public export around a capture; `dynamic`: some axis is dynamic."""
    with ExitStack() as patches:
        if is_known_torch():
            from torch.fx.experimental import _config

            # torch gives its configuration modules a `patch` that their types do not show.
            patched = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
            patches.enter_context(patched)
            patches.enter_context(_in_onnx_export())
            if dynamic:
                from torch.export import _patches

                patches.enter_context(_patches.register_lstm_while_loop_decomposition())
                patches.enter_context(_patches.register_gru_while_loop_decomposition())
        yield


def defers_guards() -> bool:
    """Whether the public export turns a condition on sizes that it cannot prove into an assertion.

    ONNX has none, so that the condition is gone from the file; what it leaves is for the checks.
    """
    if not is_known_torch():
        return False
    from torch.onnx import _flags

    return bool(_flags.PREFER_DEFERRED_RUNTIME_ASSERTS_OVER_GUARDS)


@contextmanager
def _in_onnx_export() -> Iterator[None]:
    """What a model asks by `torch.onnx.is_in_onnx_export()` is true, as in the public call."""
    from torch.onnx._internal.exporter import _flags

    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


def count_writes(tensor: torch.Tensor) -> int:
    """How often a tensor was written into; 0 where torch does not count."""
    return 0 if tensor.is_inference() else int(getattr(tensor, "_version", 0))
