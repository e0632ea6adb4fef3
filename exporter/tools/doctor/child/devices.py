"""Whether a device computes: a small file is loaded there and run.

In: a `Device`. Out: an `ProbeResponse` that says what ran the file, or why nothing did.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from exporter.manifest import Device
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    Session,
    Unavailable,
    open_session,
)
from exporter.tools.doctor.protocol import ProbeResponse

#: Any runtime of the last years takes these.
_OPSET, _IR_VERSION = 13, 7
_GIVEN = np.asarray([1.0, -2.0], dtype=np.float32)


def run_on(device: Device) -> ProbeResponse:
    """Adds two numbers to themselves there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.onnx"
        onnx.save(_small_file(), path)
        try:
            session = open_session(path, device)
            [found] = session.run({"x": _GIVEN})
        except (Unavailable, LoadFailure, RunFailure) as error:
            return ProbeResponse(problem=str(error))
        if not np.array_equal(np.asarray(found), _GIVEN + _GIVEN):
            return ProbeResponse(
                problem=f"computes {_GIVEN.tolist()} + {_GIVEN.tolist()} = {found}"
            )
        return _where(session, device)


def _where(session: Session, device: Device) -> ProbeResponse:
    placement = session.placement
    if placement is None:
        return ProbeResponse(ran_on=device.runtime)
    elsewhere = sorted(name for name in placement.nodes if name != placement.asked)
    if elsewhere and not placement.nodes.get(placement.asked):
        return ProbeResponse(problem=f"{placement.asked} left the file to {', '.join(elsewhere)}")
    return ProbeResponse(ran_on=placement.asked)


def _small_file() -> onnx.ModelProto:
    given, found = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y"))
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "add", [given], [found])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
