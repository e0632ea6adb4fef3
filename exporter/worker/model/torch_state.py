"""The two states of PyTorch for the reference, the capture and the conversion.

`inference` disables gradients and the fused transformer path, as a file is neither trained nor
fused by PyTorch. Without gradients, the fused path would replace layers by operators that no
exporter translates. `plain` is the state of a plain call of `torch.onnx.export`: gradients are on,
and the fused path remains as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from exporter.manifest import ModelSpec


@contextmanager
def apply_state(spec: ModelSpec) -> Iterator[None]:
    """Run PyTorch in the state of the contract, by default `inference`; restore it at the end."""
    mha = torch.backends.mha
    is_fused = mha.get_fastpath_enabled()
    is_plain = spec.export_state == "plain"
    mha.set_fastpath_enabled(is_fused and is_plain)
    try:
        with torch.set_grad_enabled(is_plain):
            yield
    finally:
        mha.set_fastpath_enabled(is_fused)
