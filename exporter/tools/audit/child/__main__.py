"""The entry point of an audit: `python -m exporter.tools.audit.child REQUEST RESPONSE`."""

from __future__ import annotations

import sys

from exporter.core.errors import ExitCode
from exporter.processes.request import serve_request
from exporter.tools.audit.protocol import AuditRequest


def _handle(content: bytes) -> str:
    request = AuditRequest.model_validate_json(content)
    from exporter.tools.audit.child.audit_run import InvalidBaselineFile, audit_cell

    try:
        return audit_cell(request, _report_progress).to_json()
    except InvalidBaselineFile as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(int(ExitCode.RED))


def _report_progress(done: int) -> None:
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve_request(_handle)
