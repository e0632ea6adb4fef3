"""The checks that decide if the other results mean anything: placement, determinism, power."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from exporter.checks.comparison.compare_outputs import get_overflow
from exporter.checks.comparison.custom_comparison import find_accepted_output
from exporter.checks.comparison.tolerance import ComparedOutput, Limit, compute_limit, is_float
from exporter.checks.protocol import CheckedFile, RuntimeCheck
from exporter.core.check_table import DETERMINISM_CHECK, SOFTWARE, STATE_PREFIXES, UNSTABLE
from exporter.core.text import pluralize
from exporter.manifest import Bound
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Placement, Session
from exporter.runtimes.session import list_items

#: Number of operators that a message names.
_MAX_OPERATORS = 5


@partial(RuntimeCheck, "placement")
def check_placement(_: CheckedFile, session: Session, *__: object) -> CheckResult:
    """Compare the placement of the nodes with the requested provider.

    ONNX Runtime runs a node on the CPU if another provider has no kernel for it. If no node runs on
    the requested provider, the result proves nothing about the device. If only some nodes do, the
    others are counted and named. Nodes that compute shapes are on the CPU by design, and cost
    nothing if nothing is copied. A device with `strict` allows no others. An ONNX backend cannot
    report single nodes; its own statement is accepted and quoted.

    Returns:
        A failure if no node runs there, or if others cost something and the device is strict.
        An inconclusive result if the runtime reports no placement.
    """
    placement = session.placement
    if placement is None:
        message = (
            "the runtime does not report where nodes run, so no node is known to have run "
            "on the device; try a newer version of the runtime"
        )
        return CheckResult(check="placement", status=Status.INCONCLUSIVE, message=message)
    if placement.statement:
        return CheckResult(check="placement", status=Status.PASS, message=placement.statement)
    requested, nodes = placement.requested, placement.nodes
    if not any(nodes.values()) and requested not in nodes:
        message = f"the loaded graph has no node, so nothing is proved about {requested}"
        return CheckResult(check="placement", status=Status.INCONCLUSIVE, message=message)
    total = sum(sum(counts.values()) for counts in nodes.values())
    elsewhere = total - sum(nodes.get(requested, {}).values())
    metrics: dict[str, int | float | str] = {"nodes": total}
    if placement.is_software:
        metrics["hardware"] = SOFTWARE
    if not elsewhere:
        return CheckResult(check="placement", status=Status.PASS, metrics=metrics)
    metrics |= {"elsewhere": elsewhere}
    shapes, others = sum(placement.shapes.values()), _format_other_providers(placement)
    if elsewhere == total:
        status, problem = Status.FAIL, f"no node runs on {requested}"
    elif placement.copies is None:
        status = Status.FAIL if placement.strict else Status.PASS
        problem = f"{elsewhere} of {total} nodes do not run on {requested}"
    else:
        metrics |= {"shapes": shapes, "copies": placement.copies}
        if others:
            metrics |= {"fallback": others}
        is_free = elsewhere == shapes and not placement.copies
        status = Status.FAIL if placement.strict and not is_free else Status.PASS
        verb = "has" if elsewhere - shapes == 1 else "have"
        problem = f"{elsewhere - shapes} of {total} nodes {verb} no kernel on {requested}"
        if elsewhere == shapes:
            problem = f"each of {total} nodes has a kernel on {requested}"
        problem += f" ({pluralize(placement.copies, 'copy', 'copies')})" if placement.copies else ""
    verb = "computes" if shapes == 1 else "compute"
    suffix = f"{pluralize(shapes, 'node')} {verb} shapes on the CPU" if shapes else ""
    texts = (": ".join(filter(None, (problem, others))), suffix)
    message = "; ".join(filter(None, texts))
    return CheckResult(check="placement", status=status, message=message, metrics=metrics)


def _format_other_providers(placement: Placement) -> str:
    """Return the nodes that do not run on the requested provider, without those for shapes."""
    parts = []
    for provider, counts in sorted(placement.nodes.items()):
        if provider == placement.requested:
            continue
        others = {name: count - placement.shapes.get(name, 0) for name, count in counts.items()}
        ranked = sorted(others.items(), key=lambda item: (-item[1], item[0]))
        texts = [f"{name} {count}" for name, count in ranked if count > 0]
        more = ", …" if len(texts) > _MAX_OPERATORS else ""
        if texts:
            parts.append(f"{provider} runs {', '.join(texts[:_MAX_OPERATORS])}{more}")
    return "; ".join(parts)


#: Prefix of `Reference.unstable` if a second build has other weights; their names follow.
BUILD_PREFIX = "two builds of the model differ in"


@partial(RuntimeCheck, DETERMINISM_CHECK)
def check_determinism(checked: CheckedFile, *_: object) -> CheckResult:
    """Return an inconclusive result if equal inputs gave different outputs.

    Without this check, no comparison with PyTorch means anything.
    """
    unstable = checked.reference.unstable
    if not unstable:
        return CheckResult(check=DETERMINISM_CHECK, status=Status.PASS)
    if unstable.startswith(STATE_PREFIXES):
        fix = "declare the state as an input and return it as an output; `rollout` proves the loop"
    elif unstable.startswith(BUILD_PREFIX):
        fix = "build it from numbers of Python, numpy or torch, which are seeded, or from a file"
    elif checked.spec.mode != "eval":
        fix = f"mode is '{checked.spec.mode}': 'eval' turns dropout and running averages off"
    else:
        fix = "make random numbers an input, or draw them once when the model is built"
    message = f"{UNSTABLE}{unstable}; {fix}"
    return CheckResult(check=DETERMINISM_CHECK, status=Status.INCONCLUSIVE, message=message)


#: The output and its change must be larger than the allowed error by this factor.
_MIN_RATIO = 10.0
#: A message proposes inputs that are at most this many times larger.
_LARGEST_FACTOR = 10**4
#: A wrong file must change more elements than `outside` excludes, by this factor.
_MIN_SHARE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputPower:
    """The power of the comparison of one output."""

    name: str
    spread: float | None
    """The change from the declared sample, as a share of the scale; None if unknown."""
    problem: str = ""
    """How a wrong output would pass."""
    is_declared: bool = False
    """Whether the manifest declares the tolerance."""
    factor: float = 0.0
    """How many times larger its change must be; 0 if that is not its problem."""
    limit: float | None = None
    """The allowed error as a share of the scale; None without a tolerance of floats."""
    is_empty: bool = False
    """Whether a fixed size of 0 leaves nothing to compare."""
    is_zero: bool = False
    """Whether it has no number but 0, without an overflow."""


@partial(RuntimeCheck, "power")
def check_power(checked: CheckedFile, _: Session, device_name: str) -> CheckResult:
    """Return an inconclusive result if a wrong file would have passed.

    A network with unlucky weights gives 1e-9 for every input. Then any file is within an atol of
    1e-5. So the allowed error must be small relative to the output. Outputs for inputs of another
    seed must also differ by more than the allowed error.

    An output that never changes is a constant, such as a mask or positions. Its size distinguishes
    it from a wrong one. But if no output changes, no input is known to have an effect: a file that
    always gives 7 passes if PyTorch gives 7. Positions and masks change with the size of an input,
    which the samples of other sizes prove. If no input is random, there is no other seed, and only
    the size is checked. A comparator of the manifest is called with wrong outputs: zeros, and
    PyTorch's outputs for other inputs. If it accepts them, it proves nothing.
    """
    count = len(checked.spec.outputs)
    outputs = [_measure_output(checked, index, device_name) for index in range(count)]
    # A constant of zeros is compared, too, if another output shows that the inputs matter.
    others = [each for each in outputs if each.spread != 0 or not each.is_zero]
    problems = [output.problem for output in others or outputs if output.problem]
    full = [output for output in outputs if not output.is_empty]
    if not problems and all(output.spread == 0 for output in full):
        names = ", ".join(f"'{output.name}'" for output in full)
        same = f"inputs of another seed give the very same {names}"
        problems = [same if full else "no output has an element"]
    limits = [output.limit for output in outputs if output.limit is not None]
    pairs = ((output.spread, output.limit) for output in outputs)
    spreads = [spread for spread, limit in pairs if spread is not None and limit is not None]
    metrics: dict[str, int | float | str] = {"spread": min(spreads)} if spreads else {}
    if limits:
        metrics["limit"] = max(limits)
    status, message = Status.PASS, ""
    if problems:
        status = Status.INCONCLUSIVE
        fix = "; ".join(("give the model other weights or inputs", *_list_fixes(checked, outputs)))
        message = f"a wrong file would pass: {'; '.join(problems)}; {fix}"
    return CheckResult(check="power", status=status, message=message, metrics=metrics)


def _list_fixes(checked: CheckedFile, outputs: Sequence[_OutputPower]) -> Iterator[str]:
    """Yield what removes some of the problems only."""
    if any(each.problem and each.is_declared for each in outputs):
        yield "declare a smaller tolerance"
    if factor := max((each.factor for each in outputs), default=0.0):
        fix = "outputs that hardly depend on the inputs are usual with initial weights: load "
        fix += "trained ones"
        # Such a network is linear, nearly.
        size = 10 ** math.ceil(math.log10(2 * factor))
        if size <= _LARGEST_FACTOR and any(is_float(each.dtype) for each in checked.spec.inputs):
            fix += f", or declare inputs that are {size} times larger by `fill`"
        yield fix


def _measure_output(checked: CheckedFile, index: int, device_name: str) -> _OutputPower:
    measured = ComparedOutput(checked, index, device_name)
    output, spread = measured.output, checked.reference.output_spread[index]
    name, subject = output.name, f"output '{output.name}'"
    if output.compare is not None and not output.compare.rows:
        accepted = find_accepted_output(measured)
        problem = f"the comparator of {subject} accepts {accepted}" if accepted else ""
        return _OutputPower(name=name, spread=spread, problem=problem, is_zero=True)
    if not is_float(output.dtype) or 0 in output.shape:
        is_empty = 0 in output.shape
        return _OutputPower(name=name, spread=spread, is_empty=is_empty, is_zero=True)
    samples = [sample for sample in checked.reference.samples if sample.scales]
    # One sample with a large output is enough to reveal a wrong file.
    scale = max((sample.scales[index] for sample in samples), default=0.0)
    declared = (sample.scales[index] for sample in samples if sample.kind == "declared")
    declared_scale = next(declared, 0.0)
    limit = compute_limit(measured, scale)
    is_declared = measured.bound != Bound()
    share = limit.allowed_error(scale) / scale if scale else 0.0
    declared_limit = compute_limit(measured, declared_scale)
    declared_share = declared_limit.allowed_error(declared_scale) / (declared_scale or 1.0)
    changed = _measure_changed_share(checked, index, declared_limit) if limit.outside else 1.0
    overflow, problem, factor = get_overflow(checked.reference, index), "", 0.0
    if not scale and (overflow or not spread):
        problem = f"{subject} has no number but 0{f': {overflow}' if overflow else ''}"
    elif share * _MIN_RATIO > 1:
        problem = f"the allowed error of {subject} is {share:.1e} of its size ({limit.reason})"
    elif limit.outside * _MIN_SHARE > changed:
        problem = (
            f"`outside = {limit.outside:g}` excludes {limit.outside:.0%} of the elements of "
            f"{subject}, and a wrong file changes {changed:.0%} of them"
        )
    elif spread and spread < declared_share * _MIN_RATIO:
        problem = (
            f"{subject} changes by {spread:.1e} of its size, and the allowed error is "
            f"{declared_share:.1e} of its size ({limit.reason})"
        )
        factor = 0.0 if is_declared else declared_share * _MIN_RATIO / spread
    is_zero = not scale and not overflow
    return _OutputPower(
        name=name,
        spread=spread,
        problem=problem,
        limit=share,
        is_zero=is_zero,
        is_declared=is_declared,
        factor=factor,
    )


def _measure_changed_share(checked: CheckedFile, index: int, limit: Limit) -> float:
    """Return the smaller share of elements that differ from 0 and from those of other inputs."""
    outputs = [
        np.concatenate([np.ravel(item) for item in list_items(checked.read(sample).outputs[index])])
        for sample in checked.reference.samples
        if sample.kind in ("declared", "values") and sample.scales and sample.factor == 1.0
    ]
    declared, *others = outputs
    allowed = limit.atol * np.maximum(1.0, np.abs(declared) / limit.scale)
    allowed = allowed + limit.rtol * np.abs(declared)
    others = [other for other in others if other.shape == declared.shape]
    changed = [float(np.mean(np.abs(declared - other) > allowed)) for other in others]
    return min(float(np.mean(np.abs(declared) > allowed)), max(changed, default=1.0))
