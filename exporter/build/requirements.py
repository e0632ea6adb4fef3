"""Whether this environment can export at all, found out without importing anything heavy.

In: nothing. Out: nothing, or an `ExporterError` that says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec

from exporter.core.errors import ExitCode, ExporterError

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def require_packages() -> None:
    """Looks for the packages that every worker imports.

    Raises:
        ExporterError: ENVIRONMENT, naming all that are missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExporterError(
            ExitCode.ENVIRONMENT,
            f"{', '.join(missing)} {verb} not installed here: an export needs "
            "`pip install 'onnx-exporter-matrix[export]'`",
        )
