"""The kernels of custom operators that a manifest names."""

from __future__ import annotations

import os
from pathlib import Path

from onnx.reference.op_run import OpRun

from exporter.core.import_object import load_attribute, search_project
from exporter.manifest import ModelSpec
from exporter.runtimes import Kernels


class InvalidKernel(Exception):
    """An object that the manifest declares as a kernel is not one."""


def load_kernels(spec: ModelSpec, root: Path) -> Kernels:
    """Import the kernels of a model, each once.

    Raises:
        InvalidKernel: if an object is not a kernel.
        Exception: any exception of the user's own code.
    """
    folder = (root / spec.manifest).parent
    if spec.custom_ops:
        search_project(root)
    libraries = [_find_library(op.ort_library, folder) for op in spec.custom_ops if op.ort_library]
    operators = [_load_operator(op.reference, folder) for op in spec.custom_ops if op.reference]
    return Kernels(
        libraries=tuple(dict.fromkeys(libraries)), operators=tuple(dict.fromkeys(operators))
    )


def _find_library(text: str, folder: Path) -> Path:
    if ":" not in text:
        path = folder / text
    else:
        function = load_attribute(text, folder)
        if not callable(function):
            raise InvalidKernel(f"{text} is a {type(function).__name__}, expected a function")
        result = function()
        if not isinstance(result, str | os.PathLike):
            kind = type(result).__name__
            raise InvalidKernel(f"{text} returned a {kind}, expected the path of a library")
        path = Path(result)
    if not path.is_file():
        raise InvalidKernel(f"{text}: the file {path.name} does not exist")
    return path.resolve()


def _load_operator(text: str, folder: Path) -> type[OpRun]:
    operator = load_attribute(text, folder)
    if not (isinstance(operator, type) and issubclass(operator, OpRun)):
        kind = "another class" if isinstance(operator, type) else f"a {type(operator).__name__}"
        raise InvalidKernel(f"{text} is {kind}, expected an onnx.reference.op_run.OpRun")
    # The reference runtime uses a class without a domain for ONNX's own operator of that name.
    if operator.op_domain in ("", "ai.onnx"):
        name = operator.__name__
        raise InvalidKernel(f"{text} has no op_domain: it would replace ONNX's own {name}")
    return operator
