"""A test whether the packages that a worker needs can be imported."""

from __future__ import annotations

import importlib

from exporter.tools.doctor.protocol import ProbeResponse

#: A package comes before those that import it.
_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "onnxscript")


def import_packages() -> ProbeResponse:
    """Import each package and read the properties of torch and ONNX Runtime."""
    versions, errors = {}, {}
    for name in _PACKAGES:
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"
    response = ProbeResponse(versions=versions, import_errors=errors)
    if "torch" in versions:
        from exporter.worker.torch_private.guards import is_known_torch, list_known_versions

        update = {"is_known_torch": is_known_torch(), "known_torch": list_known_versions()}
        response = response.model_copy(update=update)
    if "onnxruntime" in versions:
        import onnxruntime

        providers = tuple(onnxruntime.get_available_providers())
        response = response.model_copy(update={"providers": providers})
    return response
