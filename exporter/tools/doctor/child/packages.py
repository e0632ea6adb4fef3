"""Whether what every worker needs can be imported.

In: nothing. Out: an `ProbeResponse` with the version or the fault of each package.
"""

from __future__ import annotations

import importlib

from exporter.tools.doctor.protocol import ProbeResponse

#: In the order in which one may be the fault of the other.
_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "onnxscript")


def import_all() -> ProbeResponse:
    """Imports each, and asks torch and ONNX Runtime what they are."""
    imported, failed = {}, {}
    for name in _PACKAGES:
        try:
            imported[name] = str(importlib.import_module(name).__version__)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return ProbeResponse(
        imported=imported,
        failed=failed,
        is_known_torch="torch" in imported and _is_known(),
        known_torch=_known() if "torch" in imported else (),
        providers=_providers() if "onnxruntime" in imported else (),
    )


def _is_known() -> bool:
    from exporter.worker.torch_private.versions import is_known_torch

    return is_known_torch()


def _known() -> tuple[str, ...]:
    from exporter.worker.torch_private.versions import list_known_versions

    return list_known_versions()


def _providers() -> tuple[str, ...]:
    import onnxruntime

    return tuple(onnxruntime.get_available_providers())
