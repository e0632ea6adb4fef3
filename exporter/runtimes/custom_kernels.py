"""Kernels that a manifest brings for its custom operators.

In: a `ModelSpec` and the project's root. Out: `Kernels`, which the runtimes that can use them take.
A library is a file of the project, or what a function says; never a path from an ONNX file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from onnx.reference.op_run import OpRun

from exporter.core.import_object import load_attribute, prepend_to_path
from exporter.manifest import ModelSpec

#: The reference runtime takes a class without a domain for ONNX's own operator of that name.
_ONNX = ("", "ai.onnx")


class InvalidKernel(Exception):
    """What the manifest names is no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels by the runtime that takes them."""

    libraries: tuple[Path, ...] = ()
    """Shared libraries for ONNX Runtime."""
    operators: tuple[type[OpRun], ...] = ()
    """Operators for onnx.reference."""


NO_KERNELS = Kernels()


def load_kernels(spec: ModelSpec, root: Path) -> Kernels:
    """Imports and finds the kernels of a model, each once.

    Raises:
        NoKernel: where one is not what it has to be.
        Exception: whatever the user's own code raises.
    """
    folder = (root / spec.manifest).parent
    if spec.custom_ops:
        prepend_to_path(root)
    libraries = [_library(op.ort_library, folder) for op in spec.custom_ops if op.ort_library]
    operators = [_operator(op.reference, folder) for op in spec.custom_ops if op.reference]
    return Kernels(
        libraries=tuple(dict.fromkeys(libraries)), operators=tuple(dict.fromkeys(operators))
    )


def _library(text: str, folder: Path) -> Path:
    if ":" not in text:
        path = folder / text
    else:
        found = load_attribute(text, folder)
        if not callable(found):
            raise InvalidKernel(f"{text} is a {type(found).__name__}, expected a function")
        answer = found()
        if not isinstance(answer, str | os.PathLike):
            raise InvalidKernel(f"{text} gave a {type(answer).__name__}, expected the path of a library")
        path = Path(answer)
    if not path.is_file():
        raise InvalidKernel(f"{text}: there is no file {path.name}")
    return path.resolve()


def _operator(text: str, folder: Path) -> type[OpRun]:
    found = load_attribute(text, folder)
    if not (isinstance(found, type) and issubclass(found, OpRun)):
        what = "another class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise InvalidKernel(f"{text} is {what}, expected an onnx.reference.op_run.OpRun")
    if found.op_domain in _ONNX:
        raise InvalidKernel(f"{text} has no op_domain: it would replace ONNX's own {found.__name__}")
    return found
