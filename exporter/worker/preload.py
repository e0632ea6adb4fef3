"""What every worker needs, imported once for all of them.

In: nothing. Out: loaded modules. What cannot be imported is left to the worker, which says so in
the log of its job. ONNX Runtime is not among them: its import starts a thread, which no fork has.
"""

from __future__ import annotations

import contextlib
import importlib

_MODULES = (
    "exporter.worker.drive",
    "onnx.reference",
    "torch.export",
    "torch.onnx",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._torchlib.ops",
    "torch.onnx._internal.torchscript_exporter.utils",
    "onnxscript.optimizer",
    "onnxscript.version_converter",
)


def preload() -> None:
    """Imports them all."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        from exporter.worker.torch_reuse import read_translations

        read_translations()
