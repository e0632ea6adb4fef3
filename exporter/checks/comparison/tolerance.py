"""How far one output may be off, on one device: the manifest's word, or PyTorch's own noise.

In: the contract, the `Reference`, and the scale of the output (its largest finite magnitude).
Out: a `Limit` in the units of the output, with the reason in a few words.

Which word counts, the first that says anything: the output's for this device, for its dtype, its
general one; then the model's in the same order. A word replaces all later ones as a whole.

Without `atol` and `rtol` the limit is measured: `noise` times (8 where nothing is said) PyTorch's
own error against float64, with a floor of a few units in the last place. The floor is higher where
so few elements were measured that a small error may be luck. Where there is no float64 reference,
the defaults of `torch.testing` hold, `atol` as a share of the scale.

A sample that was not run in float64 is held against PyTorch's own output p, not against the exact
e. With the factor f (8), the floor F and the noise n of all samples, |file - e| may be
L = max(f n, F). On the samples that were run in float64 the noise is m <= n. A file of which
|file - p| <= (1 - 1/f) max(f m, F) is right: |p - e| <= n, so that |file - e| <= L. One of which it
is more has to be held against e before it is called wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.manifest import select_bound

_NOISE_FACTOR = 8.0
#: Of so few errors the largest is small by luck now and then: of one normal error it is below an
#: eighth of its usual size in 8 of 100 models, of four in 1 of 2,000, of 32 never.
_FEW = 32


@dataclass(frozen=True, slots=True)
class _Precision:
    """What rounding means in a dtype."""

    name: str
    eps: float
    """Distance from 1 to the next number."""
    least: float
    """The smallest number above 0."""
    floor: int
    """Units in the last place within which no two honest implementations agree: approximations
    of float32 functions are a few apart; half precision is computed in float32 and rounded."""
    rtol: float
    """Default of `torch.testing.assert_close`; its atol is 1e-5, for float64 1e-7."""
    atol: float


_FLOAT16 = _Precision("float16", 2.0**-10, 2.0**-24, 2, 1e-3, 1e-5)
_BFLOAT16 = _Precision("bfloat16", 2.0**-7, 2.0**-133, 2, 1.6e-2, 1e-5)
_FLOAT32 = _Precision("float32", 2.0**-23, 2.0**-149, 8, 1.3e-6, 1e-5)
_FLOAT64 = _Precision("float64", 2.0**-52, 2.0**-1074, 8, 1e-7, 1e-7)
_PRECISIONS = {
    "float16": _FLOAT16,
    "bfloat16": _BFLOAT16,
    "float32": _FLOAT32,
    "float64": _FLOAT64,
    "complex64": _FLOAT32,
    "complex128": _FLOAT64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An error of `atol + rtol * |expected|` is allowed, and more in a share of the elements."""

    atol: float
    scale: float = math.inf
    """Elements beyond it may be off by more than `atol`, in proportion."""
    rtol: float = 0.0
    outside: float = 0.0
    reason: str
    noise: float | None = None
    """PyTorch's own largest error, in the units of the output; None where it is not known."""

    def at(self, magnitude: float) -> float:
        """The error that an element of this magnitude may have."""
        return self.atol * max(1.0, magnitude / self.scale) + self.rtol * magnitude


def is_float(dtype: str) -> bool:
    """Whether values of this dtype are compared within a limit; all others are exact."""
    return dtype in _PRECISIONS


def is_limit_measured(subject: CheckContext, index: int, device: str) -> bool:
    """Whether the limit of an output is a multiple of noise, so that float64 is the reference."""
    bound = select_bound(subject.spec, subject.spec.outputs[index], device)
    by_hand = bound.atol is not None or bound.rtol is not None
    return not by_hand and subject.reference.noise[index] is not None


def compute_limit(
    subject: CheckContext, index: int, device: str, scale: float, *, exact: bool = True
) -> Limit:
    """The limit of one output in one sample.

    Args:
        subject: The contract and what PyTorch says.
        index: Of the output.
        device: The name of the device.
        scale: The largest finite magnitude of the values that the output is held against.
        exact: Whether these are float64's; without them, nothing can be measured.
    """
    output = subject.spec.outputs[index]
    precision = _PRECISIONS[output.dtype]
    bound = select_bound(subject.spec, output, device)
    share = subject.reference.noise[index]
    noise = None if share is None else share * scale
    beyond = scale or math.inf
    if bound.atol is not None or bound.rtol is not None:
        atol, rtol = bound.atol or 0.0, bound.rtol or 0.0
        beyond = math.inf
        why = f"atol {atol:g}, rtol {rtol:g} by hand"
    elif noise is not None and exact:
        atol, why = _measured(
            precision, bound.noise or _NOISE_FACTOR, noise, scale, _elements(subject, index)
        )
        rtol = 0.0
    else:
        atol, rtol = max(precision.atol * scale, precision.least), precision.rtol
        why = f"torch.testing's default for {precision.name} at this scale, without float64"
    return Limit(atol=atol, scale=beyond, rtol=rtol, outside=bound.outside, reason=why, noise=noise)


def compute_limit_without_float64(
    subject: CheckContext, index: int, device: str, scale: float
) -> Limit:
    """The limit of one output in a sample that was not run in float64; see the module.

    Args:
        subject: The contract and what PyTorch says.
        index: Of the output, whose noise is known from other samples.
        device: The name of the device.
        scale: The largest finite magnitude of PyTorch's own output.
    """
    limit = compute_limit(subject, index, device, scale)
    factor = select_bound(subject.spec, subject.spec.outputs[index], device).noise or _NOISE_FACTOR
    return replace(
        limit,
        atol=limit.atol * max(1.0 - 1.0 / factor, 0.0),
        reason=f"{limit.reason}, less what is PyTorch's own",
    )


def _measured(
    precision: _Precision, factor: float, noise: float, scale: float, elements: int
) -> tuple[float, str]:
    name = precision.name
    last_place = max(precision.eps * scale, precision.least)
    limits = [
        (factor * noise, f"{factor:g} x PyTorch's own {name} noise"),
        (precision.floor * last_place, f"{precision.floor} units in {name}'s last place"),
    ]
    if elements < _FEW:
        few = (precision.atol + precision.rtol) * scale
        limits.append((few, f"torch.testing's default for {name}, {elements} elements are few"))
    return max(limits)


def _elements(subject: CheckContext, index: int) -> int:
    """How many elements an output has over all samples."""
    shape = subject.spec.outputs[index].shape
    samples: tuple[Sample, ...] = subject.reference.samples
    return sum(
        math.prod(sample.axes.get(dim, 1) if isinstance(dim, str) else dim for dim in shape)
        for sample in samples
        if not sample.error
    )
