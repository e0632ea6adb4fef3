"""The entry point of a probe: `python -m exporter.tools.doctor.child REQUEST RESPONSE`."""

from __future__ import annotations

from exporter.processes.request import serve_request
from exporter.tools.doctor.protocol import ProbeRequest


def _handle(content: bytes) -> str:
    request = ProbeRequest.model_validate_json(content)
    if request.device is None:
        from exporter.tools.doctor.child.packages import import_packages

        return import_packages().to_json()
    from exporter.tools.doctor.child.devices import probe_device

    return probe_device(request.device).to_json()


if __name__ == "__main__":
    serve_request(_handle)
