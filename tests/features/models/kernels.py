"""Kernels for the operators of `custom_operators.py`, for ONNX Runtime and onnx.reference."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun


class Foo(OpRun):
    op_domain = "custom_domain"

    def _run(self, x: np.ndarray, alpha: float = 1.0) -> tuple[np.ndarray]:
        return ((x * alpha + 1).astype(x.dtype),)


class Halve(OpRun):
    op_domain = "custom_domain"

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x / 2,)


def library() -> str:
    """Return a library that implements these two operators in Python."""
    from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

    ends = {"inputs": [PyCustomOpDef.dt_float], "outputs": [PyCustomOpDef.dt_float]}

    @onnx_op(op_type="custom_domain::Foo", attrs={"alpha": PyCustomOpDef.dt_float}, **ends)
    def kernel(x: np.ndarray, alpha: float) -> np.ndarray:
        return x * alpha + 1

    @onnx_op(op_type="custom_domain::Halve", **ends)
    def halve(x: np.ndarray) -> np.ndarray:
        return x / 2

    return get_library_path()


def wrong_library() -> str:
    """Return the same with a kernel without the 1."""
    from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

    @onnx_op(
        op_type="custom_domain::Foo",
        inputs=[PyCustomOpDef.dt_float],
        outputs=[PyCustomOpDef.dt_float],
        attrs={"alpha": PyCustomOpDef.dt_float},
    )
    def kernel(x: np.ndarray, alpha: float) -> np.ndarray:
        return x * alpha

    return get_library_path()


class Wrong(OpRun):
    """No operator of any file."""

    op_domain = "custom_domain"

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x,)
