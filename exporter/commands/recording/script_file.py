"""Compare the ONNX file that a script left with the entry of its export."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from exporter.commands.recording.observation import FileInterface, FileTensor
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.call import Dim, Input, TensorSpec
from exporter.manifest.resolved.model import Output


def compare_file(file: FileInterface, exporter: str, spec: ModelSpec, proved: str) -> Iterator[str]:
    """Yield a sentence for each difference of a file from the promises of an entry.

    `exporter`, `proved`: The exporter that wrote the file, and the one that wrote the proved file.
    """
    if file.opset not in spec.opsets:
        opsets = ", ".join(map(str, spec.opsets))
        yield (
            f"has opset {file.opset}, and the entry proves {opsets}; the exporter could not "
            f"convert it, so set `opsets = {file.opset}` to prove the form that the script ships"
        )
    if proved and exporter != proved:
        yield (
            f"was written by {exporter}, and the entry proves a file of {proved}; set "
            f'`exporter = "{exporter}"` to prove the form that the script ships'
        )
    yield from _compare_tensors("input", file.inputs, spec.inputs)
    yield from _compare_tensors("output", file.outputs, spec.outputs)


def rename_inputs(file: FileInterface, spec: ModelSpec) -> tuple[Input, ...]:
    """Return the inputs of an entry with the names that torch chose for a script without names.

    A name of the entry at another position remains a failure of the proof.
    """
    known = {each.name for each in spec.inputs}
    if len(file.inputs) != len(spec.inputs):
        return spec.inputs
    return tuple(
        declared if tensor.name in known else declared.model_copy(update={"name": tensor.name})
        for tensor, declared in zip(file.inputs, spec.inputs, strict=True)
    )


def free_unknown_sizes(file: FileInterface, spec: ModelSpec) -> tuple[Output, ...]:
    """Return the outputs of an entry with the names of sizes that the file does not know.

    TorchScript names such a size after a node, also if it is always the same. A run shows it. The
    name of an axis of the inputs remains a failure of the proof.
    """
    known = {dim for each in file.inputs for dim in each.shape}
    known |= {dim for each in spec.inputs for dim in each.shape}
    if [each.name for each in file.outputs] != [each.name for each in spec.outputs]:
        return spec.outputs
    outputs = []
    for tensor, declared in zip(file.outputs, spec.outputs, strict=True):
        shape = declared.shape
        if len(tensor.shape) == len(shape):
            shape = tuple(
                size if isinstance(promised, int) and _is_unknown(size, known) else promised
                for size, promised in zip(tensor.shape, shape, strict=True)
            )
        outputs.append(declared.model_copy(update={"shape": shape}))
    return tuple(outputs)


def _is_unknown(size: Dim, known: Container[Dim]) -> bool:
    return isinstance(size, str) and size.isidentifier() and size not in known


def _compare_tensors(
    kind: str, actual: Sequence[FileTensor], declared: Sequence[TensorSpec]
) -> Iterator[str]:
    names, promised = [each.name for each in actual], [each.name for each in declared]
    if names != promised:
        yield f"names its {kind}s {', '.join(names)}, and the entry {', '.join(promised)}"
    if len(names) != len(promised):
        return
    for tensor, promise in zip(actual, declared, strict=True):
        subject = f"{kind} {tensor.name}"
        if tensor.dtype != promise.file_dtype:
            yield f"{subject} is {tensor.dtype}, and the entry promises {promise.file_dtype}"
        if not _is_promised(tensor.shape, promise.file_shape):
            shapes = _format(tensor.shape), _format(promise.file_shape)
            yield f"{subject} has the shape {shapes[0]}, and the entry promises {shapes[1]}"


def _is_promised(actual: Sequence[Dim], promised: Sequence[Dim]) -> bool:
    """Return whether sizes are equal and dynamic dimensions have equal names.

    Exporters give a size that follows others an expression, such as `2*batch`, or no name.
    """
    return len(actual) == len(promised) and all(
        a == b if isinstance(a, int) or isinstance(b, int) or a.isidentifier() else True
        for a, b in zip(actual, promised, strict=True)
    )


def _format(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"
