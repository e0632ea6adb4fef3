"""A test whether a device computes: it loads and runs a small file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from exporter.manifest import Device
from exporter.runtimes import LoadFailure, RunFailure, RuntimeUnavailable, open_session
from exporter.tools.doctor.protocol import ProbeResponse

#: Every runtime of the last years supports these.
_OPSET, _IR_VERSION = 13, 7
_INPUT = np.asarray([1.0, -2.0], dtype=np.float32)


def probe_device(device: Device) -> ProbeResponse:
    """Add two numbers to themselves on the device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.onnx"
        onnx.save(_build_model(), path)
        try:
            session = open_session(path, device)
            [output] = session.run({"x": _INPUT})
        except (RuntimeUnavailable, LoadFailure, RunFailure) as error:
            return ProbeResponse(problem=str(error))
    if not np.array_equal(np.asarray(output), _INPUT + _INPUT):
        values = _INPUT.tolist()
        return ProbeResponse(problem=f"computes {values} + {values} = {output}")
    placement = session.placement
    if placement is None:
        return ProbeResponse(provider=device.runtime)
    others = sorted(name for name in placement.nodes if name != placement.requested)
    if others and not placement.nodes.get(placement.requested):
        problem = f"{', '.join(others)} ran the file instead of {placement.requested}"
        return ProbeResponse(problem=problem)
    return ProbeResponse(provider=placement.requested)


def _build_model() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "add", [x], [y])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
