"""Import of the modules that every worker needs, before the fork server forks.

A module that cannot be imported is skipped: the worker reports it in the log of its job. ONNX
Runtime is not imported, because its import starts a thread, which does not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib

_MODULES = (
    "exporter.worker.job_runner",
    "onnx.reference",
    "torch.onnx",
    "sympy.tensor.tensor",
    "onnxscript.optimizer",
    "onnxscript.version_converter",
)


def preload() -> None:
    """Import the modules and fill the caches that are equal in every worker."""
    # All objects live until the end, so the garbage collector need not examine them.
    gc.disable()
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        import torch

        from exporter.worker.dependencies.source_files import map_module_owners
        from exporter.worker.torch_private.export_speedups import preload_registry
        from exporter.worker.torch_private.guards import PRIVATE_MODULES

        for name in PRIVATE_MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

        preload_registry()
        map_module_owners()
        # The table of all decompositions imports the operators of torch.
        dict(torch.export.default_decompositions())
    gc.freeze()
    gc.enable()
