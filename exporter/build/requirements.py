"""Check without an import that the packages of an export are installed."""

from __future__ import annotations

from importlib.util import find_spec

from exporter.core.errors import ExitCode, ExporterError

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def require_packages() -> None:
    """Find the packages that every worker imports.

    Raises:
        ExporterError: ENVIRONMENT, with the names of all missing packages.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExporterError(
            ExitCode.ENVIRONMENT,
            f"{', '.join(missing)} {verb} not installed here: an export needs "
            "`pip install 'onnx-exporter-matrix[export]'`",
        )
