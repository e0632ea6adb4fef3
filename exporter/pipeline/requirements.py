"""Check without an import that the machine has the packages and the sandbox of an export."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Project
from exporter.processes import bubblewrap

#: The packages that every worker imports.
_WORKER_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def require_packages(names: Sequence[str] = _WORKER_PACKAGES, *, extra: str = "export") -> None:
    """Find packages that a child process imports.

    Args:
        names: The packages.
        extra: The extra of this distribution that installs them.

    Raises:
        ExporterError: ENVIRONMENT, with the names of all missing packages.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExporterError(
            ExitCode.ENVIRONMENT,
            f"{', '.join(missing)} {verb} not installed here: the command needs "
            f"`pip install 'onnx-exporter-matrix[{extra}]'`",
        )


def require_sandbox(project: Project) -> None:
    """Check that the system offers the sandbox of the project; a worker checks Landlock itself.

    Raises:
        ExporterError: ENVIRONMENT, with the reason.
    """
    if project.sandbox != "bubblewrap":
        return
    if obstacle := bubblewrap.find_obstacle():
        fix = 'install the package bubblewrap, or use `sandbox = "none"` in [tool.exporter]'
        raise ExporterError(ExitCode.ENVIRONMENT, f"sandbox: {obstacle}; {fix}")
