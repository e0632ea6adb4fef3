"""The entry point: `python -m exporter.tools.verify.child REQUEST RESPONSE`."""

from __future__ import annotations

from exporter.processes.request import serve_request
from exporter.tools.verify.child.folder_checks import check_folder
from exporter.tools.verify.protocol import VerifyRequest


def _handle(content: bytes) -> str:
    return check_folder(VerifyRequest.model_validate_json(content)).to_json()


if __name__ == "__main__":
    serve_request(_handle)
