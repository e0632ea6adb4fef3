"""The allowed error of one output on one device.

Precedence of tolerances in the manifest: first the output's for this device, for its dtype, and its
general one. Then the model's in the same order. The first one that is set wins as a whole.

With `steps` the limit is a multiple of the scale from which PyTorch dequantizes the output.

Without these keys the limit is measured. It is `noise` (8 by default) times PyTorch's own error
relative to float64, and at least a few units in the last place. If only a few elements were
measured, a small error may be luck, and the minimum is higher. Without a float64 reference, the
defaults of `torch.testing` apply, with `atol` as a share of the scale.

The scale is that of the sample. In one sample, all outputs may be much smaller than usual: the
probability of an unlikely input is 1e-16. Approximations of functions such as the sigmoid have the
rounding of 1. So no bound is below a few units in the last place of the declared sample's scale,
nor, if that scale is above 1, of 1.

The same defaults apply if PyTorch's own error is above 1e-3 of the scale. A file within them agrees
with PyTorch. A file beyond them, but within 8 times PyTorch's error, is neither right nor wrong: an
index that flips is no rounding, and a long chain of cancellations is. An explicit `noise` in the
manifest declares that the error is rounding.

A sample without a float64 run is compared with PyTorch's own output p, not with the exact e. With
the factor f (8), the minimum F and the noise n of all samples, |file - e| may be L = max(f n, F).
In the samples with a float64 run the noise is m <= n. If |file - p| <= (1 - 1/f) max(f m, F), the
file is correct: |p - e| <= n, and so |file - e| <= L. If the difference is larger, the file must be
compared with e before it fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from exporter.checks.protocol import CheckedFile
from exporter.jobs import Sample
from exporter.manifest import Bound, Output, select_bound

_NOISE_FACTOR = 8.0
#: With fewer errors than this, the largest may be small by luck. One normal error is below an
#: eighth of its usual size in 8 of 100 models, the largest of four in 1 of 2,000, of 32 never.
_FEW_ELEMENTS = 32
#: Units in the last place of the difference of two products of an integer and a scale.
_PRODUCT_ROUNDING = 4


@dataclass(frozen=True, slots=True)
class Precision:
    """The rounding of a dtype."""

    name: str
    eps: float
    """Distance from 1 to the next number."""
    least: float
    """The smallest number above 0."""
    floor: int
    """Units in the last place in which correct implementations differ: approximations of float32
    functions differ by a few; half precision is computed in float32 and rounded."""
    rtol: float
    """Default of `torch.testing.assert_close`; its atol is 1e-5, for float64 1e-7."""
    atol: float


_FLOAT16 = Precision("float16", 2.0**-10, 2.0**-24, 2, 1e-3, 1e-5)
_BFLOAT16 = Precision("bfloat16", 2.0**-7, 2.0**-133, 2, 1.6e-2, 1e-5)
_FLOAT32 = Precision("float32", 2.0**-23, 2.0**-149, 8, 1.3e-6, 1e-5)
_FLOAT64 = Precision("float64", 2.0**-52, 2.0**-1074, 8, 1e-7, 1e-7)
PRECISIONS = {
    "float16": _FLOAT16,
    "bfloat16": _BFLOAT16,
    "float32": _FLOAT32,
    "float64": _FLOAT64,
    "complex64": _FLOAT32,
    "complex128": _FLOAT64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An allowed error of `atol + rtol * |expected|`, except for a share of the elements."""

    atol: float
    scale: float = math.inf
    """For elements beyond it, the allowed error grows in proportion."""
    rtol: float = 0.0
    outside: float = 0.0
    reason: str = ""
    noise: float | None = None
    """PyTorch's own largest error, in the units of the output; None if it is unknown."""
    factor: float = _NOISE_FACTOR
    """The multiple of PyTorch's own error, if the limit is measured."""

    def allowed_error(self, magnitude: float) -> float:
        return self.atol * max(1.0, magnitude / self.scale) + self.rtol * magnitude


@dataclass(frozen=True, slots=True)
class ComparedOutput:
    """One output of the contract on one device."""

    checked: CheckedFile
    index: int
    device: str
    is_exact: bool = True
    """True if the sample was run in float64, even if that run failed."""
    is_usual: bool = True
    """False for special values, which this program chose and not the manifest."""

    @property
    def output(self) -> Output:
        return self.checked.spec.outputs[self.index]

    @property
    def bound(self) -> Bound:
        """The bound of the manifest; empty if it sets none."""
        return select_bound(self.checked.spec, self.output, self.device)

    @property
    def large_noise(self) -> float | None:
        """PyTorch's error as a share of the scale if it is too large for a default bound."""
        shares = self.checked.reference.large_noise
        return shares[self.index] if self.index < len(shares) else None

    @property
    def noise(self) -> float | None:
        """PyTorch's error as a share of the scale; a large one only if `noise` is declared."""
        share = self.checked.reference.noise[self.index]
        return self.large_noise if share is None and self.bound.noise is not None else share

    @property
    def noise_scale(self) -> float:
        """The scale of the samples in which the noise was measured; 0 if it is unknown."""
        scales = self.checked.reference.noise_scales
        return scales[self.index] if self.index < len(scales) else 0.0


def is_float(dtype: str) -> bool:
    """Return True if values of the dtype have a limit; all others must be equal."""
    return dtype in PRECISIONS


def is_limit_measured(checked_output: ComparedOutput) -> bool:
    """Return True if the limit is a multiple of noise; float64 is the target then."""
    return not _is_fixed(checked_output.bound) and checked_output.noise is not None


def measure_uncertainty(checked_output: ComparedOutput, scale: float) -> float:
    """Return the error up to which a wrong value and PyTorch's own error look the same.

    It is 0 if PyTorch's error is a bound or unknown, or if the manifest has a bound.
    """
    bound, share = checked_output.bound, checked_output.large_noise
    if _is_fixed(bound) or bound.noise is not None or share is None:
        return 0.0
    return _NOISE_FACTOR * share * scale


def _is_fixed(bound: Bound) -> bool:
    return any(value is not None for value in (bound.atol, bound.rtol, bound.steps))


def compute_limit(checked_output: ComparedOutput, scale: float, *, exact: bool = True) -> Limit:
    """Return the limit of one output in one sample.

    `scale`: The largest finite magnitude of the target values.
    `exact`: Whether these values are float64's; otherwise nothing can be measured.
    """
    precision = PRECISIONS[checked_output.output.dtype]
    bound, share = checked_output.bound, checked_output.noise
    reference = checked_output.checked.reference
    noise = None if share is None else share * scale
    if noise and reference.noise[checked_output.index] is None:
        # It is declared, and the rounding of a cancellation does not shrink with its result.
        noise *= max(1.0, checked_output.noise_scale / scale)
    rtol, factor = 0.0, bound.noise or _NOISE_FACTOR
    if bound.steps is not None:
        # Without a step in the reference, values must be equal.
        steps = bound.steps
        known = reference.steps
        step = (known[checked_output.index] if checked_output.index < len(known) else None) or 0.0
        return Limit(
            atol=steps * step + _PRODUCT_ROUNDING * precision.eps * scale if step else 0.0,
            outside=bound.outside,
            reason=f"{steps:g} steps of {step:g} from the manifest",
        )
    if _is_fixed(bound):
        atol, rtol = bound.atol or 0.0, bound.rtol or 0.0
        if not checked_output.is_usual:
            # A normalization of equal values enlarges their rounding. The file is compared with
            # PyTorch's output, and that has this error, too.
            atol = max(atol, (_NOISE_FACTOR + 1) * (noise or 0.0))
        hint = ""
        if noise and atol + rtol * scale < noise:
            hint = f", below PyTorch's own noise of {noise:.2g}; remove `tolerance` to allow "
            hint += f"{_NOISE_FACTOR:g} times this noise"
        return Limit(
            atol=atol,
            rtol=rtol,
            outside=bound.outside,
            reason=f"atol {atol:g}, rtol {rtol:g} from the manifest{hint}",
            noise=noise,
        )
    declared_scales = (
        sample.scales[checked_output.index]
        for sample in reference.samples
        if sample.kind == "declared" and sample.scales
    )
    usual_scale = min(next(declared_scales, 0.0), 1.0)
    last_places = precision.floor * precision.eps
    if noise is not None and exact:
        least = last_places * usual_scale
        atol, reason = _measure_limit(
            precision, factor, noise, scale, _count_elements(checked_output)
        )
    else:
        # `rtol` is the rounding of half precision here.
        least = min(last_places, precision.atol) * usual_scale
        atol, rtol = max(precision.atol * scale, precision.least), precision.rtol
        is_large = checked_output.large_noise is not None
        cause = "PyTorch's noise is no bound" if is_large else "without float64"
        reason = f"torch.testing's default for {precision.name} at this scale, {cause}"
    if least > atol:
        atol = least
        reason = f"{precision.floor} units in {precision.name}'s last place of the declared scale"
    return Limit(
        atol=atol,
        scale=scale or math.inf,
        rtol=rtol,
        outside=bound.outside,
        reason=reason,
        noise=noise,
        factor=factor,
    )


def compute_limit_without_float64(checked_output: ComparedOutput, scale: float) -> Limit:
    """Return the limit of one output in a sample without a float64 run; see the module."""
    limit = compute_limit(checked_output, scale)
    return replace(
        limit,
        atol=limit.atol * max(1.0 - 1.0 / limit.factor, 0.0),
        reason=f"{limit.reason}, less PyTorch's own error",
    )


def _measure_limit(
    precision: Precision, factor: float, noise: float, scale: float, elements: int
) -> tuple[float, str]:
    name = precision.name
    last_place = max(precision.eps * scale, precision.least)
    limits = [
        (factor * noise, f"{factor:g} x PyTorch's own {name} noise"),
        (precision.floor * last_place, f"{precision.floor} units in {name}'s last place"),
    ]
    if elements < _FEW_ELEMENTS:
        default = (precision.atol + precision.rtol) * scale
        reason = f"torch.testing's default for {name}, {elements} elements are few"
        limits.append((default, reason))
    return max(limits)


def _count_elements(checked_output: ComparedOutput) -> int:
    samples: tuple[Sample, ...] = checked_output.checked.reference.promised_samples
    return sum(
        math.prod(
            sample.axes.get(dim, 1) if isinstance(dim, str) else dim
            for dim in checked_output.output.shape
        )
        for sample in samples
        if not sample.error
    )
