"""What every worker needs, imported once for all of them.

In: nothing. Out: loaded modules. What cannot be imported is left to the worker, which says so in
the log of its job. ONNX Runtime is not among them: its import starts a thread, which no fork has.
"""

from __future__ import annotations

import contextlib
import gc
import importlib

from exporter.worker.torch_private.preloaded_modules import PRIVATE_MODULES

_MODULES = (
    "exporter.worker.job_runner",
    "onnx.reference",
    "torch.onnx",
    "sympy.tensor.tensor",
    "onnxscript.optimizer",
    "onnxscript.version_converter",
    *PRIVATE_MODULES,
)


def preload() -> None:
    """Imports them all, and works out what is the same in every worker."""
    # All of it stays to the end: nobody has to look for what of it is no longer used.
    gc.disable()
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        _work_out()
    gc.freeze()
    gc.enable()


def _work_out() -> None:
    import torch

    from exporter.worker.dependencies.distributions import cache_module_owners
    from exporter.worker.torch_private.export_speedups import preload_registry

    preload_registry()
    cache_module_owners()
    # Lists every operator of torch that can be taken apart, which makes torch load them all.
    dict(torch.export.default_decompositions())
