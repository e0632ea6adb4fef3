"""The entry point: `python -m exporter.tools.operators.child REQUEST RESPONSE`."""

from __future__ import annotations

import os
import sys

from exporter.core.errors import ExitCode
from exporter.processes.request import serve_request
from exporter.tools.operators.survey import SurveyRequest


def _handle(content: bytes) -> str:
    try:
        import torch
    except ImportError as error:
        sys.stderr.write(f"torch cannot be imported: {error}\n")
        sys.exit(int(ExitCode.ENVIRONMENT))
    from exporter.tools.operators.child.model_operators import find_operator_gaps

    torch.set_num_threads(1)
    return find_operator_gaps(SurveyRequest.model_validate_json(content)).to_json()


if __name__ == "__main__":
    serve_request(_handle)
    sys.stdout.flush()
    sys.stderr.flush()
    # The response is written. An error of a model's library when Python ends is not a failure.
    os._exit(int(ExitCode.OK))
