"""Entry of the process: `python -m exporter.shipment REQUEST.json`.

In: the path of a request. Out: `answer.json` beside it and exit code 0.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.errors import ExitCode
from exporter.job import write_value
from exporter.shipment.protocol import Answer, Request


def main() -> int:
    """Does what the request asks of each of its targets."""
    path = Path(sys.argv[1])
    request = Request.model_validate_json(path.read_bytes())
    if request.step == "arrange":
        from exporter.shipment.arrange import arrange as step
    else:
        from exporter.shipment.hold import hold as step
    findings = tuple(step(request, target) for target in request.targets)
    write_value(path.with_name("answer.json"), Answer(findings=findings))
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
