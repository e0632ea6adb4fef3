"""The entry point: `python -m exporter.tools.operator_calls.child REQUEST RESPONSE`."""

from __future__ import annotations

import os
import sys

from exporter.core.errors import ExitCode
from exporter.processes.request import serve_request
from exporter.tools.operator_calls.protocol import MeasureRequest


def _handle(content: bytes) -> str:
    request = MeasureRequest.model_validate_json(content)
    try:
        import torch

        from exporter.tools.operator_calls.child.measure import measure_functions

        torch.set_num_threads(1)
        return measure_functions(request, _report_progress).to_json()
    except ImportError as error:
        sys.stderr.write(f"torch's samples cannot be imported: {error}\n")
        sys.exit(int(ExitCode.ENVIRONMENT))


def _report_progress(done: int, total: int) -> None:
    sys.stdout.write(f"progress {done} {total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve_request(_handle)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(ExitCode.OK))  # an error of a library when Python ends is not a failure
