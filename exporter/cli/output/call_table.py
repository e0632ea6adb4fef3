"""What `exporter list --inputs` shows: the call of a model, laid out.

In: a `ModelSpec`. Out: rows of text: every input as the file has it and where it goes, and what
else is in the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from exporter.manifest import Input, ModelSpec
from exporter.report import format_fill

HEADER = ("INPUT", "GOES TO", "DTYPE", "SHAPE", "VALUES")


def call_rows(spec: ModelSpec) -> Iterator[tuple[str, ...]]:
    """One row for each input, in the order of the file; then constants and containers."""
    for index, item in enumerate(spec.inputs):
        shape = "a number" if item.scalar else f"[{', '.join(map(str, item.shape))}]"
        dtype = f"{item.dtype}, optional" if item.optional else item.dtype
        yield item.name, item.at or _in_order(index), dtype, shape, _values(spec, item)
    for fixed in spec.constants:
        value = "None" if fixed.value is None else json.dumps(fixed.value)
        yield "", fixed.at, "", "", f"always {value}"
    for each in spec.containers:
        yield "", each.at, "", "", f"a {each.type}" if not each.is_object else each.type


def _in_order(index: int) -> str:
    """The place of an input that only user code knows."""
    return f"tensor {index} of the call"


def _values(spec: ModelSpec, item: Input) -> str:
    if spec.inputs_from is not None:
        return spec.inputs_from.function
    return format_fill(item.fill)
