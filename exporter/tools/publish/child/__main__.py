"""The entry point: `python -m exporter.tools.publish.child REQUEST RESPONSE`."""

from __future__ import annotations

from exporter.processes.request import serve_request
from exporter.tools.publish.protocol import PublishRequest, PublishResponse


def _handle(content: bytes) -> str:
    request = PublishRequest.model_validate_json(content)
    if request.step == "arrange":
        from exporter.tools.publish.child.test_data import write_test_data as run_step
    else:
        from exporter.tools.publish.child.proof import verify_target as run_step
    results = tuple(run_step(request, target) for target in request.targets)
    return PublishResponse(results=results).to_json()


if __name__ == "__main__":
    serve_request(_handle)
