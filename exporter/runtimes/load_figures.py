"""The figures of a load, in a process that does nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.manifest import Device
from exporter.runtimes.drivers.driver import LoadFigures, measure_load, to_bits
from exporter.runtimes.file_request import make_request
from exporter.runtimes.runtime_process import RuntimeProcess
from exporter.runtimes.runtime_registry import open_session
from exporter.runtimes.session import NO_KERNELS, Array, Kernels


def measure_file_load(
    path: Path, small: Path, device: Device, kernels: Kernels, inputs: Mapping[str, Array]
) -> LoadFigures:
    """Return the figures of a file that the device runs; this process must do nothing else.

    `small`: A file with one node, whose load time is the measure of the machine.

    Raises:
        DriverFailure: if the process of the device's environment does not run the file.
        RuntimeProcessEnd: if that process ended.
    """
    environment = device.environment
    if environment is None:
        return measure_load(
            lambda: open_session(small, device, NO_KERNELS),
            lambda: open_session(path, device, kernels),
            lambda session: session.run(inputs),
        )
    request = make_request(small, device, NO_KERNELS)
    process = RuntimeProcess(request, environment.interpreter, environment.name, alone=True)
    values = {name: to_bits(array) for name, array in inputs.items()}
    return process.measure_load(make_request(path, device, kernels), values)
