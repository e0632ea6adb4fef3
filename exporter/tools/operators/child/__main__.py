"""Entry of the process that asks torch: `python -m exporter.tools.operators.child REQUEST OUT`.

In: `table`, or the path of a `SurveyRequest`. Out: an `OperatorCounts` or `SurveyResponse` in OUT.json and exit
code 0; 4 and a line on stderr where this torch cannot be asked.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.jobs.job_folder import write_json
from exporter.tools.operators.protocol import SurveyRequest


def main() -> int:
    """Answers the request that the command line names."""
    request, out = sys.argv[1], Path(sys.argv[2])
    try:
        import torch

        from exporter.worker.torch_private.registries import (
            UnknownTorchVersion,
            require_known_torch,
        )
    except ImportError as missing:
        sys.stderr.write(f"torch cannot be asked: {missing}\n")
        return int(ExitCode.ENVIRONMENT)
    torch.set_num_threads(1)
    if request == "table":
        from exporter.tools.operators.child.table import build_operator_table

        try:
            require_known_torch()
        except UnknownTorchVersion as unknown:
            sys.stderr.write(f"{unknown}\n")
            return int(ExitCode.ENVIRONMENT)
        write_json(out, build_operator_table())
    else:
        from exporter.tools.operators.child.model_operators import find_operator_gaps

        write_json(out, find_operator_gaps(SurveyRequest.model_validate_json(Path(request).read_bytes())))
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written; what a model's library does at the end of Python is no failure.
    os._exit(int(ExitCode.OK))


if __name__ == "__main__":
    sys.exit(main())
