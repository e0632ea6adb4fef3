"""The request that a driver gets: the file with the settings of its device."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from exporter.manifest import Device
from exporter.runtimes.drivers.driver import FileRequest
from exporter.runtimes.graph_walk import iter_tensors
from exporter.runtimes.session import Kernels


def make_request(path: Path, device: Device, kernels: Kernels) -> FileRequest:
    return FileRequest(
        runtime=device.runtime,
        path=str(path),
        providers=tuple(device.providers),
        provider_options=device.provider_settings,
        session_options=device.session_settings,
        provider_library=device.provider_library,
        module=device.module,
        device=device.device,
        libraries=tuple(map(str, kernels.libraries)) if device.row.kernels == "ort_library" else (),
        variables=tuple(sorted(device.variables.items())),
        external=_list_external_files(path) if device.row.needs_node else (),
        operators=kernels.operators if device.row.kernels == "reference" else (),
    )


def _list_external_files(path: Path) -> tuple[str, ...]:
    try:
        tensors = iter_tensors(onnx.load(str(path), load_external_data=False))
    except (OSError, DecodeError):
        return ()  # the runtime reports it
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    return tuple(dict.fromkeys(each.value for each in entries if each.key == "location"))
