"""The other right outputs of a reference file: indices of equal values, and choices by rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from exporter.checks.comparison.compare_arrays import compute_max_error, measure_scale
from exporter.checks.protocol import SelectionData, write_rounded_outputs, write_ties
from exporter.runtimes import LoadFailure, RunFailure, RuntimeUnavailable
from exporter.runtimes.graph_walk import normalize_domain
from exporter.runtimes.reference_file import NotWidened, ReferenceFile
from exporter.runtimes.session import Array, OnnxValue

#: Both values of a tie may have the error of a bound, 8 times the reference's own.
_TIE_FACTOR = 16.0
#: A larger difference from float64, as a share of the scale, is no rounding.
_LARGEST_SHARE = 1e-3
#: Elements of the largest tensor whose selections are examined.
_LARGEST = 1 << 22
#: Choices that are tried for each operator.
_CHOICES = 8
#: Operators that move the elements of their first input.
_MOVES = frozenset(
    {"Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Slice", "Gather"}
    | {"Split", "Expand"}
)
_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32})
_FAILURES = (NotWidened, LoadFailure, RunFailure, RuntimeUnavailable)


def make_selection(
    keys: Array, wide: Array | None, rows: Array, *, is_first_promised: bool
) -> SelectionData:
    """Return a selection with the rounding of its values.

    `keys`, `wide`: The values in float64 or int64, and those of a run in float64.
    """
    is_float = keys.dtype.kind == "f"
    exact = np.full(keys.shape, not is_float)
    margin = 0.0
    if is_float and wide is not None and wide.shape == keys.shape:
        exact = keys == wide
        noise = compute_max_error(keys, wide)
        if noise <= _LARGEST_SHARE * measure_scale(wide):
            margin = _TIE_FACTOR * noise
    return SelectionData(
        keys=keys, rows=rows, exact=exact, margin=margin, is_first_promised=is_first_promised
    )


@dataclass(slots=True)
class FileChoices:
    """The right outputs of a file for one input."""

    selections: dict[int, SelectionData] = field(default_factory=dict)
    """The values that an output of indices selects from, by its position in the file."""
    others: list[list[OnnxValue]] = field(default_factory=list)
    """The outputs with other choices among values that are equal within rounding."""

    def write(
        self,
        folder: Path,
        outputs: Sequence[OnnxValue],
        positions: Sequence[int],
    ) -> bool:
        """Write what the reader of a sample accepts besides its outputs; return whether it is any.

        `positions`: For each output of the sample, its position in the file.
        """
        runs = [[run[position] for position in positions] for run in self.others]
        if not self.selections and not runs:
            return False
        selections = [self.selections.get(position) for position in positions]
        write_ties(folder, outputs, selections)
        write_rounded_outputs(folder, runs)
        return True


def find_choices(file: ReferenceFile, inputs: Mapping[str, Array]) -> FileChoices:
    """Return the other right outputs; none if the file selects nothing or is too large."""
    choices = FileChoices()
    try:
        graph = file.read_graph()
    except NotWidened:
        return choices
    for selector in _find_selectors(graph):
        try:
            _add_choices(choices, selector, file, inputs)
        except _FAILURES:
            continue
    return choices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selector:
    """A node of ArgMax, ArgMin or TopK."""

    keys: str
    indices: str
    values: str
    """The selected values; "" if no node reads them."""
    moved: tuple[str, ...]
    """The outputs of the file that have these indices."""
    axis: int
    is_largest: bool
    is_last: bool
    """Whether the last of equal values is selected."""
    has_axis: bool
    """Whether the indices have the axis of the values."""
    is_single: bool

    def select(self, keys: Array, count: int) -> Array:
        """Return the indices of the best values, along the last axis."""
        ordered = -keys if self.is_largest else keys
        if self.is_last:
            chosen = keys.shape[-1] - 1 - np.argsort(np.flip(ordered, -1), axis=-1, kind="stable")
        else:
            chosen = np.argsort(ordered, axis=-1, kind="stable")
        indices: Array = chosen[..., :count].astype(np.int64)
        return indices

    def restore(self, rows: Array, axis: int) -> Array:
        """Return an array with the selected axis last in the shape of the indices."""
        return np.moveaxis(rows, -1, axis) if self.has_axis else rows[..., 0]


def _find_selectors(graph: ModelProto) -> Iterator[_Selector]:
    outputs = {item.name for item in graph.graph.output}
    read = {name for node in graph.graph.node for name in node.input} | outputs
    stored = {item.name for item in graph.graph.initializer}
    for node in graph.graph.node:
        is_top = node.op_type == "TopK"
        if normalize_domain(node.domain) or node.op_type not in ("ArgMax", "ArgMin", "TopK"):
            continue
        indices = node.output[1] if is_top and len(node.output) > 1 else node.output[0]
        if not indices or node.input[0] in stored or (is_top and len(node.output) < 2):
            continue
        yield _Selector(
            keys=node.input[0],
            indices=indices,
            values=node.output[0] if is_top and node.output[0] in read else "",
            moved=tuple(name for name in _follow(graph, indices) if name in outputs),
            axis=_read(node, "axis", -1 if is_top else 0),
            is_largest=bool(_read(node, "largest", 1)) if is_top else node.op_type == "ArgMax",
            is_last=bool(_read(node, "select_last_index", 0)),
            has_axis=is_top or bool(_read(node, "keepdims", 1)),
            is_single=not is_top,
        )


def _read(node: NodeProto, name: str, default: int) -> int:
    attribute: AttributeProto | None = next((i for i in node.attribute if i.name == name), None)
    return default if attribute is None else int(helper.get_attribute_value(attribute))


def _follow(graph: ModelProto, indices: str) -> list[str]:
    """Return the values with the elements of an output of indices, and that output itself."""
    moved = [indices]
    for node in graph.graph.node:
        is_cast = node.op_type == "Cast" and _read(node, "to", 0) in _INTEGERS
        if node.input and node.input[0] in moved and (node.op_type in _MOVES or is_cast):
            moved += node.output
    return moved


def _add_choices(
    choices: FileChoices,
    selector: _Selector,
    file: ReferenceFile,
    inputs: Mapping[str, Array],
) -> None:
    keys, wide = _compute_keys(selector, file, inputs)
    (indices,) = file.run_part(inputs, [selector.indices])
    if keys is None or isinstance(indices, list) or not indices.size or not keys.ndim:
        return
    axis = selector.axis % keys.ndim
    moved = np.moveaxis(keys, axis, -1)
    columns = moved.shape[-1]
    count = 1 if selector.is_single else indices.shape[axis]
    numbers = np.arange(moved.size // columns).reshape(*moved.shape[:-1], 1)
    rows = selector.restore(np.repeat(numbers, count, axis=-1), axis)
    selection = make_selection(
        moved.reshape(-1, columns),
        None if wide is None else np.moveaxis(wide, axis, -1).reshape(-1, columns),
        rows,
        is_first_promised=True,
    )
    for name in selector.moved:
        (moved_rows,) = file.run_part(inputs, [name], {selector.indices: rows.astype(np.int64)})
        if not isinstance(moved_rows, list):
            position = list(file.output_names).index(name)
            choices.selections[position] = replace(selection, rows=moved_rows.astype(np.int64))
    known = [indices]
    for chosen in _choose(selector, selection, moved.shape, count):
        other = selector.restore(chosen, axis).astype(indices.dtype)
        if other.shape != indices.shape or any(np.array_equal(other, each) for each in known):
            continue
        known.append(other)
        replaced = {selector.indices: other}
        if selector.values:
            (values,) = file.run_part(inputs, [selector.values])
            taken = selector.restore(np.take_along_axis(moved, chosen, -1), axis)
            replaced[selector.values] = taken.astype(np.asarray(values).dtype)
        choices.others.append(file.run_part(inputs, file.output_names, replaced))


def _compute_keys(
    selector: _Selector, file: ReferenceFile, inputs: Mapping[str, Array]
) -> tuple[Array | None, Array | None]:
    """Return the values that an operator selects from, and those of a run in float64."""
    if selector.keys in inputs:
        value: OnnxValue = inputs[selector.keys]
        exact: OnnxValue | None = value
    else:
        (value,) = file.run_part(inputs, [selector.keys])
        try:
            (exact,) = file.run_part(inputs, [selector.keys], is_wide=True)
        except _FAILURES:
            exact = None
    if isinstance(value, list) or isinstance(exact, list) or value.size > _LARGEST:
        return None, None
    dtype = np.int64 if value.dtype.kind in "biu" else np.float64
    return value.astype(dtype), None if exact is None else exact.astype(dtype)


def _choose(
    selector: _Selector, selection: SelectionData, shape: Sequence[int], count: int
) -> Iterator[Array]:
    """Yield the indices that other rounding selects, along the last axis."""
    keys = selection.keys
    if keys.dtype.kind != "f" or not np.isfinite(keys).all() or selection.exact.all():
        return
    for seed in range(_CHOICES):
        shares = np.random.default_rng(seed // 2).uniform(-0.5, 0.5, keys.shape)
        shares *= (-1.0) ** seed  # so that each row of two near values has both choices
        changed = keys + np.where(selection.exact, 0.0, selection.margin * shares)
        yield selector.select(changed, count).reshape(*shape[:-1], count)
