"""Select the tolerance that applies to an output on a device."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.manifest.resolved.model import Bound, ModelSpec, Output
from exporter.manifest.syntax.device_names import split_device

#: The factor of the measured noise if a manifest does not set `noise`.
DEFAULT_NOISE_FACTOR = 8.0


def select_bound(spec: ModelSpec, output: Output, device: str) -> Bound:
    """Return the first bound that is set: of the output, then of the model.

    In each of them, the bound for the device precedes the bound for the dtype, and that precedes
    the general one.

    Returns:
        An empty bound if the manifest sets none.
    """
    for bound in _list_candidates(spec, output, device):
        if bound.is_set:
            return bound
    return Bound()


def has_steps(spec: ModelSpec, index: int) -> bool:
    """Return whether a device of some opset compares an output in steps."""
    cells = ((spec.resolve_cell(o, device), device) for o in spec.opsets for device in spec.devices)
    return any(
        select_bound(cell, cell.outputs[index], device).steps is not None for cell, device in cells
    )


def _list_candidates(spec: ModelSpec, output: Output, device: str) -> Iterator[Bound]:
    for tolerance in (output.tolerance, spec.tolerance):
        if tolerance is not None:
            general = tolerance.by_device.get(split_device(device)[0], Bound())
            yield tolerance.by_device.get(device, general)
            yield tolerance.by_dtype.get(output.dtype, Bound())
            yield tolerance
