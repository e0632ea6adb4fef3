"""PyTorch's own outputs held against the contract: dtypes, and sizes by the names of axes.

In: the declared outputs, what PyTorch put out, and the sizes of the inputs' axes. Out: problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter.manifest import Dim, Output
from exporter.runtimes.values import Array, OnnxValue, list_items


def find_undeclared_outputs(
    outputs: Sequence[Output], expected: Sequence[OnnxValue], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Where PyTorch's outputs are not what the contract says.

    An axis that only outputs have gets its size from the first tensor that has it. An axis that
    only a sequence has is free in each item.
    """
    known = dict(sizes)
    pairs = list(zip(outputs, expected, strict=True))
    for output, value in pairs:
        if not isinstance(value, list):
            for dim, size in zip(output.file_shape, value.shape, strict=False):
                known.setdefault(str(dim), size)
    for output, value in pairs:
        for place, array in enumerate(list_items(value)):
            what = f"output '{output.name}'"
            what = f"item {place} of {what}" if isinstance(value, list) else what
            yield from _problems(what, output, array, dict(known))


def _problems(what: str, output: Output, array: Array, known: dict[str, int]) -> Iterator[str]:
    dtype, shape = output.file_dtype, output.file_shape
    if array.dtype.name != dtype:
        yield f"{what} is declared {dtype}, PyTorch gives {array.dtype}"
    wanted = [
        known.setdefault(dim, size) if isinstance(dim, str) else dim
        for dim, size in zip(shape, array.shape, strict=False)
    ]
    if len(shape) != array.ndim or wanted != list(array.shape):
        sized = _sized(shape, known)
        yield (
            f"{what} is declared [{', '.join(map(str, shape))}]"
            f"{f' with {sized}' if sized else ''}, PyTorch gives {list(array.shape)}"
        )


def _sized(shape: Sequence[Dim], known: Mapping[str, int]) -> str:
    names = dict.fromkeys(name for name in shape if isinstance(name, str) and name in known)
    return ", ".join(f"{name}={known[name]}" for name in names)
