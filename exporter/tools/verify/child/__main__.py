"""The entry point: `python -m exporter.tools.verify.child REQUEST RESPONSE`."""

from __future__ import annotations

from pathlib import Path

from exporter.processes.request import serve_request
from exporter.tools.verify.protocol import ChildRequest, OpsetRequest, OpsetResponse


def _handle(content: bytes) -> str:
    request = ChildRequest.model_validate_json(content)
    if request.opset is not None:
        return _read_opset(request.opset).to_json()
    if request.verify is None:
        raise ValueError("the request is empty")
    from exporter.tools.verify.child.folder_checks import check_folder

    return check_folder(request.verify).to_json()


def _read_opset(request: OpsetRequest) -> OpsetResponse:
    from exporter.checks.files.model_file import UnreadableModel, read_model
    from exporter.runtimes.graph_walk import normalize_domain

    try:
        model = read_model(Path(request.path))
    except UnreadableModel as error:
        return OpsetResponse(problem=str(error))
    imports = (each.version for each in model.opset_import if not normalize_domain(each.domain))
    opset = next(imports, 0)
    return OpsetResponse(opset=opset, problem="" if opset else "imports no opset of ONNX")


if __name__ == "__main__":
    serve_request(_handle)
