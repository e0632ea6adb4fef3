"""Probes of packages and devices in a child process, because an import or a runtime may crash."""

from __future__ import annotations

import importlib
import tempfile
from importlib.util import find_spec
from pathlib import Path

from exporter.commands.doctor.doctor import COMPANIONS, ImportedPackages
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Device

#: A package comes before those that import it.
_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "onnxscript")
#: Every runtime of the last years supports these.
_OPSET, _IR_VERSION = 13, 7
_INPUT = [1.0, -2.0]


def import_packages() -> ImportedPackages:
    """Import each package and read the properties of torch and ONNX Runtime."""
    versions, errors = {}, {}
    for name in (*_PACKAGES, *filter(find_spec, COMPANIONS)):
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"
    packages = ImportedPackages(versions=versions, import_errors=errors)
    if "torch" in versions:
        # It imports torch, which may be missing or crash; the import is a part of the probe.
        from exporter.worker.torch_private.guards import is_known_torch, list_known_versions

        update = {"is_known_torch": is_known_torch(), "known_torch": list_known_versions()}
        packages = packages.model_copy(update=update)
    if "onnxruntime" in versions:
        import onnxruntime

        providers = tuple(onnxruntime.get_available_providers())
        packages = packages.model_copy(update={"providers": providers})
    return packages


def list_silent_instruments(root: Path) -> tuple[str, ...]:
    """Return a text for each instrument of a worker that reports nothing of a known example."""
    # They import torch, which may be missing; the function that imports packages reports that.
    from exporter.worker import instruments
    from exporter.worker.dependencies.executed_code import EXECUTED
    from exporter.worker.dependencies.opened_files import OpenedFiles, watch_variables
    from exporter.worker.dependencies.packages import watch_searches

    opened, read = OpenedFiles(trace=True), watch_variables()
    watch_searches(root)
    EXECUTED.watch()
    with opened.watch():
        recorders = instruments.list_silent_recorders(opened, read, root)
        return (*instruments.list_silent(has_captures=True), *recorders)


def probe_device(device: Device) -> str:
    """Add two numbers to themselves on the device, and return the program that did it.

    Raises:
        ExporterError: ENVIRONMENT, if the device does not compute.
    """
    import numpy as np
    from onnx import TensorProto, helper, save

    # It imports onnx, which may be missing; the function that imports packages reports that.
    from exporter.runtimes import LoadFailure, RunFailure, RuntimeUnavailable, open_session

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "add", [x], [y])
    opsets = [helper.make_opsetid("", _OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.onnx"
        save(proto, path)
        try:
            session = open_session(path, device)
            [output] = session.run({"x": np.asarray(_INPUT, dtype=np.float32)})
        except (RuntimeUnavailable, LoadFailure, RunFailure) as error:
            raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error
    if np.asarray(output).tolist() != [2 * value for value in _INPUT]:
        message = f"computes {_INPUT} + {_INPUT} = {output}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    placement = session.placement
    if placement is None:
        return device.runtime
    others = sorted(name for name in placement.nodes if name != placement.requested)
    if others and not placement.nodes.get(placement.requested):
        message = f"{', '.join(others)} ran the file instead of {placement.requested}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return placement.requested
