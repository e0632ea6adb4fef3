"""The table of `exporter list --inputs`: the inputs of a model's call."""

from __future__ import annotations

import json
from collections.abc import Iterator

from exporter.manifest import ModelSpec
from exporter.report import format_fill

HEADER = ("INPUT", "GOES TO", "DTYPE", "SHAPE", "VALUES")


def build_call_rows(spec: ModelSpec) -> Iterator[tuple[str, ...]]:
    """Yield one row for each input in the order of the file, then constants and containers."""
    for index, item in enumerate(spec.inputs):
        shape = "a number" if item.scalar else f"[{', '.join(map(str, item.shape))}]"
        dtype = f"{item.dtype}, optional" if item.optional else item.dtype
        # A function of the user may return inputs without a known position in the call.
        target = item.at or f"tensor {index} of the call"
        fill = format_fill(item.fill)
        if spec.inputs_from and item.fill.kind == "function":
            fill = spec.inputs_from.function
        yield item.name, target, dtype, shape, fill
    for constant in spec.constants:
        value = "None" if constant.value is None else json.dumps(constant.value)
        yield "", constant.at, "", "", f"always {value}"
    for container in spec.containers:
        kind = container.type if container.is_object else f"a {container.type}"
        yield "", container.at, "", "", kind
