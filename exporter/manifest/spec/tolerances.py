"""Which of the manifest's tolerances holds for an output on a device.

In: a `ModelSpec`, one of its outputs and the name of a device. Out: a `Bound`.
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.manifest.spec.model import Bound, ModelSpec, Output


def select_bound(spec: ModelSpec, output: Output, device: str) -> Bound:
    """The first word of the manifest that says anything: of the output, then of the model.

    In each, the word for the device comes before that for the dtype, and that before the general
    one.
    """
    for bound in _words(spec, output, device):
        if bound.outside or any(v is not None for v in (bound.atol, bound.rtol, bound.noise)):
            return bound
    return Bound()


def _words(spec: ModelSpec, output: Output, device: str) -> Iterator[Bound]:
    for tolerance in (output.tolerance, spec.tolerance):
        if tolerance is not None:
            yield tolerance.by_device.get(device, Bound())
            yield tolerance.by_dtype.get(output.dtype, Bound())
            yield tolerance
