"""The patches of `torch.onnx.export` around a capture.

`torch.onnx.export` captures and decomposes a model again for each opset. The worker captures it
once, with the same patches: recurrent layers over a dynamic sequence become a loop, sizes 0 and 1
are not special, and `torch.onnx.is_in_onnx_export()` is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from exporter.worker.torch_private.guards import is_enabled, replace_attribute


@contextmanager
def patch_capture(*, dynamic: bool) -> Iterator[None]:
    """Apply the patches of the public export; `dynamic` if an axis is dynamic."""
    with ExitStack() as patches:
        if is_enabled("capture"):
            from torch.fx.experimental import _config
            from torch.onnx._internal.exporter import _flags

            # torch gives its configuration modules a `patch` that their types do not show.
            patched = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
            patches.enter_context(patched)
            patches.enter_context(replace_attribute(_flags, "_is_onnx_exporting", True))
            if dynamic:
                from torch.export import _patches

                patches.enter_context(_patches.register_lstm_while_loop_decomposition())
                patches.enter_context(_patches.register_gru_while_loop_decomposition())
        yield


def defers_guards() -> bool:
    """Return True if the public export turns an unproven condition on sizes into an assertion.

    ONNX has no assertions, so the condition is missing in the file. The checks cover it.
    """
    if not is_enabled("capture"):
        return False
    from torch.onnx import _flags

    return bool(_flags.PREFER_DEFERRED_RUNTIME_ASSERTS_OVER_GUARDS)
