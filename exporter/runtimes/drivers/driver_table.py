"""The table of the drivers, each imported when a file needs it."""

from __future__ import annotations

from importlib import import_module

from exporter.runtimes.drivers.driver import Driver, DriverFailure, FileRequest, describe

_PACKAGE = "exporter.runtimes.drivers"
#: Value of `runtime` -> the module with the function `open_file`.
DRIVERS = {
    "onnxruntime": f"{_PACKAGE}.onnxruntime_driver",
    "reference": f"{_PACKAGE}.reference_driver",
    "openvino": f"{_PACKAGE}.openvino_driver",
    "tract": f"{_PACKAGE}.tract_driver",
    "backend": f"{_PACKAGE}.backend_driver",
}


def load_file(request: FileRequest) -> Driver:
    """Load the file in its runtime.

    Raises:
        DriverFailure: if the runtime is missing, or does not load the file.
    """
    try:
        module = import_module(DRIVERS[request.runtime])
    except Exception as error:  # an incomplete installation raises any exception
        problem = f"{request.runtime} cannot be imported"
        raise DriverFailure("unavailable", problem, describe(error)) from error
    driver: Driver = module.open_file(request)
    return driver
