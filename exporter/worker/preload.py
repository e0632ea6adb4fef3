"""Import of the modules that every worker needs, before the fork server forks.

A module that cannot be imported is skipped: the worker reports it in the log of its job. ONNX
Runtime is not imported, because its import starts a thread, which does not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterable, Iterator
from functools import cache

_MODULES = ("exporter.worker.job_runner", "onnx.reference", "torch.onnx")
#: The modules of captures and of their conversion: half of all imports.
_CAPTURE_MODULES = ("sympy.tensor.tensor", "onnxscript.optimizer", "onnxscript.version_converter")


def preload() -> None:
    """Import the modules and fill the caches that are equal in every worker."""
    with _no_garbage():
        _import(_MODULES)
        with contextlib.suppress(ImportError):
            from exporter.worker.dependencies.source_files import (
                map_module_owners,
                resolve_module_files,
            )

            map_module_owners()
            resolve_module_files()


@cache
def preload_capture() -> None:
    """Do the same, once, for workers that capture a program; a trace needs none of it."""
    with _no_garbage():
        _import(_CAPTURE_MODULES)
        with contextlib.suppress(ImportError):
            import torch

            from exporter.worker.dependencies.source_files import resolve_module_files
            from exporter.worker.torch_private.export_speedups import preload_registry
            from exporter.worker.torch_private.guards import PRIVATE_MODULES

            _import(PRIVATE_MODULES)
            preload_registry()
            # The table of all decompositions imports the operators of torch.
            dict(torch.export.default_decompositions())
            resolve_module_files()


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Create objects that the garbage collector need not examine: all live until the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
