"""Entry of an audit's process: `python -m exporter.tools.audit.child REQUEST.json`.

In: the path of a request. Out: `audit.json` beside it and exit code 0, and meanwhile the count of
mutants that are done, line by line; 1 and a line on stderr where the file does not pass its checks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.jobs.job_folder import write_value
from exporter.tools.audit.protocol import AuditRequest


def main() -> int:
    """Audits the cell of the request that the command line names."""
    path = Path(sys.argv[1])
    request = AuditRequest.model_validate_json(path.read_bytes())
    from exporter.tools.audit.child.audit_run import InvalidBaselineFile, conduct

    try:
        audit = conduct(request, _say)
    except InvalidBaselineFile as unsound:
        sys.stderr.write(f"{unsound}\n")
        return int(ExitCode.RED)
    write_value(path.with_name("audit.json"), audit)
    return int(ExitCode.OK)


def _say(done: int) -> None:
    """The parent counts along."""
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
