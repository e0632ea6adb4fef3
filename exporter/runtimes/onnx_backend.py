"""Anything that implements the ONNX backend API: `prepare`, `supports_device`, and `run`.

In: the path of a file and a `Device` that names a module. Out: a `Session`.

The interface is that of `onnx.backend.base`: `prepare(model, device)` gives an object whose
`run(inputs)` takes the inputs in the order of the graph and returns the outputs in theirs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend

from exporter.manifest import Device
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
)
from exporter.runtimes.values import Array, OnnxValue

_CPU = "CPU"


class BackendSession:
    """A file prepared by a backend; see `Session`."""

    def __init__(self, path: Path, device: Device) -> None:
        """Loads the file with its external data and has the backend prepare it.

        Raises:
            Unavailable: where the module cannot be imported, or does not support the device.
            LoadFailure: where the module is no backend, or the backend refuses the file.
        """
        self._path = path
        self._module, self._device = device.module, device.device or _CPU
        backend = _backend(device.module, path)
        self._gives_word = _supports(backend, device.module, self._device, path)
        try:
            model = onnx.load(path)
        except Exception as error:  # damaged in any way
            raise LoadFailure(format_error(error, path)) from error
        stored = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [item.name for item in model.graph.input if item.name not in stored]
        self._outputs = tuple(item.name for item in model.graph.output)
        try:
            self._prepared = backend.prepare(model, device=self._device)
        except Exception as error:  # backends raise what they like, SkipTest among it
            raise LoadFailure(format_error(error, path)) from error
        if not callable(getattr(self._prepared, "run", None)):
            raise LoadFailure(f"{self._module}: what `prepare` returned has no `run`")

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return self._outputs

    @property
    def placement(self) -> Placement | None:
        """The backend's word, where it gave one: the API does not tell where nodes run."""
        if not self._gives_word:
            return None
        word = f"{self._module} says that it runs on {self._device}; it does not tell of each node"
        return Placement(requested=self._device, nodes={}, statement=word)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where an input is missing or unknown, or the backend fails on these inputs.
        """
        missing = [name for name in self._inputs if name not in inputs]
        unknown = sorted(set(inputs) - set(self._inputs))
        if missing or unknown:
            what = f"no input {missing[0]}" if missing else f"the file has no input {unknown[0]}"
            raise RunFailure(what)
        try:
            outputs = self._prepared.run([inputs[name] for name in self._inputs])
        except Exception as error:
            raise RunFailure(format_error(error, self._path)) from error
        if not isinstance(outputs, tuple | list):
            raise RunFailure(f"{self._module}: `run` returned no sequence of outputs")
        return [
            [np.asarray(item) for item in output]
            if isinstance(output, list)
            else np.asarray(output)
            for output in outputs
        ]


def _backend(module: str, path: Path) -> Any:
    """The module, or the class in it, that has `prepare`."""
    name, _, attribute = module.partition(":")
    try:
        found: Any = importlib.import_module(name)
    except Exception as error:  # what is not installed whole raises anything
        raise RuntimeUnavailable(f"{name} cannot be imported: {format_error(error, path)}") from error
    found = getattr(found, attribute, None) if attribute else found
    if not callable(getattr(found, "prepare", None)):
        raise LoadFailure(f"{module} is no ONNX backend: it has no `prepare`")
    return found


def _supports(backend: Any, module: str, device: str, path: Path) -> bool:
    """Whether the backend itself says that it runs on the device.

    Raises:
        Unavailable: where it says that it does not.
    """
    supports = getattr(backend, "supports_device", None)
    # The base class says yes to every device without having looked.
    said = getattr(supports, "__func__", supports)
    if supports is None or said is vars(Backend)["supports_device"].__func__:
        return device == _CPU
    try:
        if supports(device):
            return True
    except Exception as error:
        message = f"{module} cannot say whether it supports {device}: {format_error(error, path)}"
        raise RuntimeUnavailable(message) from error
    raise RuntimeUnavailable(f"{module} does not support {device} on this machine")
