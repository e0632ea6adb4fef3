"""What can run an ONNX file: one protocol, one module per runtime.

In: the path of a file and a `Device`. Out: a `Session`, or one of three exceptions that say whose
fault it is. No torch here: any machine or older runtime can check an artifact.
"""

from exporter.runtimes.custom_kernels import (
    NO_KERNELS,
    Kernels,
    NoKernel,
    load_kernels,
)
from exporter.runtimes.open_session import open_session
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    Session,
    Unavailable,
)

__all__ = [
    "NO_KERNELS",
    "Kernels",
    "LoadFailure",
    "NoKernel",
    "Placement",
    "RunFailure",
    "Session",
    "Unavailable",
    "load_kernels",
    "open_session",
]
