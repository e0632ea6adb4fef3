"""The entry point: `python -m exporter.tools.operators.child REQUEST RESPONSE`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from exporter.core.errors import ExitCode
from exporter.processes.request import serve_request
from exporter.tools.operators.protocol import SurveyRequest


def _handle(content: bytes) -> str:
    try:
        import torch

        from exporter.worker.torch_private.registries import (
            UnknownTorchVersion,
            require_known_torch,
        )
    except ImportError as error:
        _exit(f"torch cannot be imported: {error}")
    torch.set_num_threads(1)
    if content != b"table":
        from exporter.tools.operators.child.model_operators import find_operator_gaps

        return find_operator_gaps(SurveyRequest.model_validate_json(content)).to_json()
    from exporter.tools.operators.child.table import build_operator_table

    try:
        require_known_torch()
    except UnknownTorchVersion as error:
        _exit(str(error))
    return build_operator_table().to_json()


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(int(ExitCode.ENVIRONMENT))


if __name__ == "__main__":
    serve_request(_handle)
    sys.stdout.flush()
    sys.stderr.flush()
    # The response is written. An error of a model's library when Python ends is not a failure.
    os._exit(int(ExitCode.OK))
