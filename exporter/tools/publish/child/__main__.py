"""Entry of the process: `python -m exporter.tools.publish.child REQUEST.json`.

In: the path of a request. Out: `answer.json` beside it and exit code 0.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.jobs.job_folder import write_value
from exporter.tools.publish.protocol import PublishRequest, PublishResponse


def main() -> int:
    """Does what the request asks of each of its targets."""
    path = Path(sys.argv[1])
    request = PublishRequest.model_validate_json(path.read_bytes())
    if request.step == "arrange":
        from exporter.tools.publish.child.test_data import arrange as step
    else:
        from exporter.tools.publish.child.verify import hold as step
    findings = tuple(step(request, target) for target in request.targets)
    write_value(path.with_name("answer.json"), PublishResponse(findings=findings))
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
