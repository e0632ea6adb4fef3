"""Programs that execute ONNX files: one protocol, one driver for each runtime.

A plugin in another distribution adds a runtime. It registers a function in its pyproject.toml:

    [project.entry-points."exporter.runtimes"]
    NAME = "package.module:open_session"

`NAME` is the value of `runtime` in a device table of the manifest project. The function receives
`(path, device, kernels)`, as `runtime_registry.open_session` does, and returns a `Session`. It
raises `RuntimeUnavailable` or `LoadFailure`, and `Session.run` raises `RunFailure`.
"""

from exporter.runtimes.drivers.driver import Placement
from exporter.runtimes.runtime_process import start_runtime_processes
from exporter.runtimes.runtime_registry import (
    import_driver,
    list_absent_files,
    open_session,
)
from exporter.runtimes.session import (
    NO_KERNELS,
    Kernels,
    LoadFailure,
    ProviderMissing,
    RunFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
)

__all__ = [
    "NO_KERNELS",
    "Kernels",
    "LoadFailure",
    "Placement",
    "ProviderMissing",
    "RunFailure",
    "RuntimeProcessEnd",
    "RuntimeUnavailable",
    "Session",
    "import_driver",
    "list_absent_files",
    "open_session",
    "start_runtime_processes",
]
