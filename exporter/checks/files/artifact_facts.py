"""The properties of an ONNX file for reports: size, hash, operators, parameters."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from onnx import TensorProto

from exporter.checks.files.external_data import list_external_files
from exporter.checks.files.model_file import read_model
from exporter.core.files import hash_file
from exporter.records.record import Artifact
from exporter.runtimes.graph_walk import iter_initializers, iter_nodes, normalize_domain

#: Weights are floats. Shapes and indices that an exporter stores are integers.
_FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)


def measure_artifact(path: Path, model_id: str) -> Artifact:
    """Return the properties of one file.

    Args:
        path: The `.onnx` file; external data is in the same folder.
        model_id: The final folder of the model inside the build folder.

    Raises:
        UnreadableModel: if the file is missing or is not an ONNX file.
    """
    model = read_model(path)
    names = list_external_files(model)
    external = [path.parent / name for name in names]
    imports = {normalize_domain(item.domain): item.version for item in model.opset_import}
    operators: Counter[str] = Counter()
    for node in iter_nodes(model):
        domain = normalize_domain(node.domain)
        operators[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    return Artifact(
        file=f"{model_id}/{path.name}",
        sha256=hash_file(path),
        bytes=path.stat().st_size + sum(file.stat().st_size for file in external if file.is_file()),
        external_data=names,
        ir_version=model.ir_version,
        opset_imports=dict(sorted(imports.items())),
        nodes=operators.total(),
        parameters=sum(
            math.prod(tensor.dims)
            for tensor in iter_initializers(model)
            if tensor.data_type in _FLOATS
        ),
        operators=dict(sorted(operators.items())),
    )
