"""Read the interface of the ONNX file that a script left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onnx import TensorProto, ValueInfoProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.commands.recording.observation import FileInterface, FileTensor
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest.resolved.call import Dim
from exporter.runtimes.graph_walk import normalize_domain


def read_interface(path: str) -> FileInterface:
    """Return the opset, the inputs and the outputs of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if it is not an ONNX file.
    """
    try:
        proto = read_model(Path(path))
    except UnreadableModel as error:
        raise ExporterError(ExitCode.UNREADABLE, str(error)) from error
    opsets = [each.version for each in proto.opset_import if not normalize_domain(each.domain)]
    weights = {each.name for each in proto.graph.initializer}
    return FileInterface(
        opset=next(iter(opsets), 0),
        inputs=_list_tensors(each for each in proto.graph.input if each.name not in weights),
        outputs=_list_tensors(proto.graph.output),
    )


def _list_tensors(values: Iterable[ValueInfoProto]) -> tuple[FileTensor, ...]:
    return tuple(
        FileTensor(
            name=each.name,
            dtype=_name_dtype(each.type.tensor_type.elem_type),
            shape=tuple(map(_read_dim, each.type.tensor_type.shape.dim)),
        )
        for each in values
    )


def _name_dtype(number: int) -> str:
    if number == TensorProto.UNDEFINED:
        return "unknown"
    return str(tensor_dtype_to_np_dtype(number))


def _read_dim(dim: object) -> Dim:
    if dim.HasField("dim_value"):  # type: ignore[attr-defined]
        return int(dim.dim_value)  # type: ignore[attr-defined]
    return str(dim.dim_param) or "?"  # type: ignore[attr-defined]
