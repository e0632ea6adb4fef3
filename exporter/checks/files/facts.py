"""What is measured on a file, without any judgement: size, hash, operators, parameters.

In: the path of a file. Out: an `Artifact`. Weights outside the file are counted, not loaded.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from exporter.checks.files.external_data import external_files
from exporter.checks.files.graph_walk import domain_of, initializers, model_nodes
from exporter.checks.files.read import read_model
from exporter.records.record import Artifact

#: Weights are floats; shapes and indices that an exporter stores are integers.
_FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)


def artifact_facts(path: Path, model_id: str) -> Artifact:
    """The facts of one file.

    Args:
        path: The `.onnx` file; external data lies beside it.
        model_id: The folder of the model under the build folder, once it is in place.

    Raises:
        Unreadable: where the file is missing or is no ONNX.
    """
    model = read_model(path)
    outside = external_files(model)
    beside = [path.parent / name for name in outside]
    return Artifact(
        file=f"{model_id}/{path.name}",
        sha256=_sha256(path),
        bytes=path.stat().st_size + sum(item.stat().st_size for item in beside if item.is_file()),
        external_data=outside,
        ir_version=model.ir_version,
        opset_imports=_imports(model),
        nodes=sum(1 for _ in model_nodes(model)),
        parameters=sum(math.prod(t.dims) for t in initializers(model) if t.data_type in _FLOATS),
        operators=_operators(model),
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _imports(model: ModelProto) -> dict[str, int]:
    """Versions by domain, ONNX's own as the empty name."""
    imports = {domain_of(item.domain): item.version for item in model.opset_import}
    return dict(sorted(imports.items()))


def _operators(model: ModelProto) -> dict[str, int]:
    counts = Counter(_operator(node) for node in model_nodes(model))
    return dict(sorted(counts.items()))


def _operator(node: NodeProto) -> str:
    domain = domain_of(node.domain)
    return f"{domain}::{node.op_type}" if domain else node.op_type
