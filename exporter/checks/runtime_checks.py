"""The checks that run the file, or decide if a run proves anything."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from exporter.checks.comparison.compare_outputs import (
    choose_limit,
    compare_by,
    get_overflow,
)
from exporter.checks.comparison.compare_samples import (
    apply_sample_noise,
    compare_samples,
    compare_values,
)
from exporter.checks.comparison.tolerance import Limit, OutputContext, compute_limit, is_float
from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext, RuntimeCheck
from exporter.checks.sample_files import DamagedSample, SampleData
from exporter.core.known_names import SOFTWARE
from exporter.jobs import Sample
from exporter.manifest import Axis, Metric
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Placement, RunFailure, Session
from exporter.runtimes.graph_walk import normalize_domain
from exporter.runtimes.session import Array, OnnxValue, list_items

#: Number of operators that a message names.
_MAX_OPERATORS = 5


# ONNX Runtime runs a node on the CPU if another provider has no kernel for it. If no node runs on
# the requested provider, the result proves nothing about the device. If only some nodes do, the
# others are counted and named, because shapes are computed on the CPU by design. A device with
# `strict` allows no other provider. An ONNX backend cannot report single nodes; its own statement
# is accepted and quoted.
class PlacementCheck:
    """The providers that run the nodes of the loaded file; see `RuntimeCheck`."""

    name = "placement"

    def applies(self, context: CheckContext) -> bool:
        """Return True: every result concerns a device."""
        return True

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the placement of the nodes with the requested provider.

        Returns:
            A failure if no node runs there, or if not all nodes do and the device is strict.
            An inconclusive result if the runtime reports no placement.
        """
        placement = session.placement
        if placement is None:
            message = (
                "the runtime does not report where nodes run, so no node is known to have run "
                "on the device; try a newer version of the runtime"
            )
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        if placement.statement:
            return CheckResult(check=self.name, status=Status.PASS, message=placement.statement)
        requested, nodes = placement.requested, placement.nodes
        if not any(nodes.values()) and requested not in nodes:
            message = f"the loaded graph has no node, so nothing is proved about {requested}"
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        total = sum(sum(counts.values()) for counts in nodes.values())
        elsewhere = total - sum(nodes.get(requested, {}).values())
        metrics: dict[str, int | float | str] = {"nodes": total}
        if placement.is_software:
            metrics["hardware"] = SOFTWARE
        if not elsewhere:
            return CheckResult(check=self.name, status=Status.PASS, metrics=metrics)
        metrics |= {"elsewhere": elsewhere}
        if elsewhere == total:
            status, problem = Status.FAIL, f"no node runs on {requested}"
        else:
            status = Status.FAIL if placement.strict else Status.PASS
            problem = f"{elsewhere} of {total} nodes do not run on {requested}"
        message = f"{problem}: {_format_other_providers(placement)}"
        return CheckResult(check=self.name, status=status, message=message, metrics=metrics)


def _format_other_providers(placement: Placement) -> str:
    parts = []
    for provider, counts in sorted(placement.nodes.items()):
        if provider == placement.requested or not counts:
            continue
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        names = ", ".join(f"{operator} {count}" for operator, count in ranked[:_MAX_OPERATORS])
        parts.append(f"{provider} runs {names}{', …' if len(ranked) > _MAX_OPERATORS else ''}")
    return "; ".join(parts)


#: The output and its change must be larger than the allowed error by this factor.
_MIN_RATIO = 10.0
#: A wrong file must change more elements than `outside` excludes, by this factor.
_MIN_SHARE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputPower:
    """An output; all figures but `spread` are 0 if it has no floats."""

    name: str
    is_real: bool
    is_empty: bool = False
    """True if a fixed size of 0 leaves nothing to compare."""
    scale: float = 0.0
    """The scale in the sample in which it is largest."""
    limit: float = 0.0
    """The allowed error in that sample, as a share of the scale."""
    reason: str = ""
    overflow: str = ""
    """How PyTorch's dtype leaves its range."""
    spread: float | None
    """The change from the declared sample, as a share of the scale; None if unknown."""
    declared_limit: float = 0.0
    """The allowed error in the declared sample, as a share of its scale."""
    outside: float = 0.0
    """The share of elements that may have any value."""
    changed: float = 1.0
    """The share of elements that a wrong file would change by more than the allowed error."""
    accepted: str = ""
    """A wrong output that the comparator of the manifest accepts."""


# A network with unlucky weights gives 1e-9 for every input. Then any file is within an atol of
# 1e-5. So the allowed error must be small relative to the output. Outputs for inputs of another
# seed must also differ by more than the allowed error.
#
# An output that never changes is a constant, such as a mask or positions. Its size distinguishes
# it from a wrong one. But if no output changes, no input is known to have an effect: a file that
# always gives 7 passes if PyTorch gives 7. Positions and masks change with the size of an input,
# which the samples of other sizes prove. If no input is random, there is no other seed, and only
# the size is checked.
# A comparator of the manifest is called with wrong outputs: zeros, and PyTorch's outputs for other
# inputs. If it accepts them, it proves nothing.
class PowerCheck:
    """The change of outputs relative to their allowed error; see `RuntimeCheck`."""

    name = "power"

    def applies(self, context: CheckContext) -> bool:
        """Return True: every comparison needs it."""
        return True

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Return an inconclusive result if a wrong file would have passed."""
        count = len(context.spec.outputs)
        outputs = [_measure_output(context, index, device) for index in range(count)]
        problems = [problem for output in outputs if (problem := _find_problem(output))]
        full = [output for output in outputs if not output.is_empty]
        if not problems and all(output.spread == 0 for output in full):
            names = ", ".join(f"'{output.name}'" for output in full)
            same = f"inputs of another seed give the very same {names}"
            problems = [same if full else "no output has an element"]
        real = [output for output in outputs if output.is_real]
        spreads = [output.spread for output in real if output.spread is not None]
        metrics: dict[str, int | float | str] = {"spread": min(spreads)} if spreads else {}
        if real:
            metrics["limit"] = max(output.limit for output in real)
        status, message = Status.PASS, ""
        if problems:
            status = Status.INCONCLUSIVE
            message = (
                f"a wrong file would pass: {'; '.join(problems)}; give the model other weights "
                "or inputs, or a smaller tolerance"
            )
        return CheckResult(check=self.name, status=status, message=message, metrics=metrics)


def _measure_output(context: CheckContext, index: int, device: str) -> _OutputPower:
    measured = OutputContext(context, index, device)
    output, spread = measured.output, context.reference.output_spread[index]
    if output.compare is not None and not output.compare.rows:
        accepted = _find_accepted_output(measured)
        return _OutputPower(name=output.name, is_real=False, spread=spread, accepted=accepted)
    if not is_float(output.dtype) or 0 in output.shape:
        is_empty = 0 in output.shape
        return _OutputPower(name=output.name, is_real=False, is_empty=is_empty, spread=spread)
    samples = [sample for sample in context.reference.samples if sample.scales]
    # One sample with a large output is enough to reveal a wrong file.
    scale = max((sample.scales[index] for sample in samples), default=0.0)
    declared = (sample.scales[index] for sample in samples if sample.kind == "declared")
    declared_scale = next(declared, 0.0)
    limit = compute_limit(measured, scale)
    declared_limit = compute_limit(measured, declared_scale)
    return _OutputPower(
        name=output.name,
        is_real=True,
        scale=scale,
        limit=limit.allowed_error(scale) / scale if scale else 0.0,
        reason=limit.reason,
        overflow=get_overflow(context.reference, index),
        spread=spread,
        declared_limit=declared_limit.allowed_error(declared_scale) / (declared_scale or 1.0),
        outside=limit.outside,
        changed=_measure_changed_share(context, index, declared_limit) if limit.outside else 1.0,
    )


def _find_accepted_output(output: OutputContext) -> str:
    """Return a wrong output that the comparator accepts, or "" if it rejects all."""
    context, comparator = output.context, output.output.compare
    samples = [each for each in context.reference.promised_samples if not each.error]
    declared = next((each for each in samples if each.kind == "declared"), None)
    if comparator is None or declared is None:
        return ""
    data = context.read(declared)
    expected = np.asarray(data.outputs[output.index])
    target = data.float64_outputs[output.index]
    target = np.asarray(target) if isinstance(target, np.ndarray) else expected
    if target.shape != expected.shape:
        target = expected

    def accepts(wrong: Array) -> bool:
        return not compare_by(comparator, wrong, expected, target, None, output).problem

    # Zeros have no largest value, so a ranking gets the opposite one.
    wrong = -expected if comparator.top_k else np.zeros_like(expected)
    if not np.array_equal(wrong, expected) and accepts(wrong):
        return "the opposite values" if comparator.top_k else "zeros"
    others = [
        (sample.name, np.asarray(context.read(sample).outputs[output.index]))
        for sample in samples
        if sample.kind == "values" and sample.factor == 1.0
    ]
    others = [
        (name, other)
        for name, other in others
        if other.shape == expected.shape and not np.array_equal(other, expected)
    ]
    if others and all(accepts(other) for _, other in others):
        return f"PyTorch's values for other inputs ('{others[0][0]}')"
    return ""


def _measure_changed_share(context: CheckContext, index: int, limit: Limit) -> float:
    """Return the smaller share of elements that differ from 0 and from those of other inputs."""
    outputs = [
        np.concatenate([np.ravel(item) for item in list_items(context.read(sample).outputs[index])])
        for sample in context.reference.samples
        if sample.kind in ("declared", "values") and sample.scales and sample.factor == 1.0
    ]
    declared, *others = outputs
    allowed = limit.atol * np.maximum(1.0, np.abs(declared) / limit.scale)
    allowed = allowed + limit.rtol * np.abs(declared)
    others = [other for other in others if other.shape == declared.shape]
    changed = [float(np.mean(np.abs(declared - other) > allowed)) for other in others]
    return min(float(np.mean(np.abs(declared) > allowed)), max(changed, default=1.0))


def _find_problem(output: _OutputPower) -> str:
    if output.accepted:
        return f"the comparator of output '{output.name}' accepts {output.accepted}"
    if not output.is_real:
        return ""
    if not output.scale:
        cause = f": {output.overflow}" if output.overflow else ""
        return f"output '{output.name}' has no number but 0{cause}"
    if output.limit * _MIN_RATIO > 1:
        return (
            f"the allowed error of output '{output.name}' is {output.limit:.1e} of its size "
            f"({output.reason})"
        )
    if output.outside * _MIN_SHARE > output.changed:
        return (
            f"`outside = {output.outside:g}` excludes {output.outside:.0%} of the elements of "
            f"output '{output.name}', and a wrong file changes {output.changed:.0%} of them"
        )
    if output.spread and output.spread < output.declared_limit * _MIN_RATIO:
        return (
            f"output '{output.name}' changes by {output.spread:.1e} of its size, and the allowed "
            f"error is {output.declared_limit:.1e} of its size ({output.reason})"
        )
    return ""


#: Prefix of `Reference.unstable` if only the buffers change.
STATEFUL_PREFIX = "it keeps state in its buffers"
#: Prefix if a call changes parameters; their names follow.
WEIGHTS_PREFIX = "a call changes"
#: Prefix if the outputs are others after calls with other inputs.
HISTORY_PREFIX = "its outputs depend on earlier calls"
#: Prefix if a second build has other weights; their names follow.
BUILD_PREFIX = "two builds of the model differ in"
_STATE_PREFIXES = (STATEFUL_PREFIX, WEIGHTS_PREFIX, HISTORY_PREFIX)


# Without this, no comparison with PyTorch means anything.
class DeterminismCheck:
    """The difference between two runs of PyTorch in the worker; see `RuntimeCheck`."""

    name = "determinism"

    def applies(self, context: CheckContext) -> bool:
        """Return True: every comparison needs a deterministic reference."""
        return True

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Return an inconclusive result if equal inputs gave different outputs."""
        unstable = context.reference.unstable
        if not unstable:
            return CheckResult(check=self.name, status=Status.PASS)
        if unstable.startswith(_STATE_PREFIXES):
            fix = "declare the state as an input and return it as an output"
        elif unstable.startswith(BUILD_PREFIX):
            fix = (
                "build it from numbers of Python, numpy or torch, which are seeded, or from a file"
            )
        elif context.spec.mode != "eval":
            fix = f"mode is '{context.spec.mode}': 'eval' turns dropout and running averages off"
        else:
            fix = "make random numbers an input, or draw them once when the model is built"
        message = f"PyTorch differs from itself: {unstable}; {fix}"
        return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)


#: A table with fewer rows has too few parts to distinguish a damaged copy from another table.
MIN_ROWS = 8
_PARTS = 64


@dataclass(frozen=True, slots=True)
class _TableCopy:
    """A table of the file and the weight that it copies, as digests of parts."""

    name: str
    rows: int
    parts: tuple[str, ...]
    weight_parts: tuple[str, ...]


# An embedding has tens of thousands of rows, and the samples read only a few of them. A
# comparison of outputs proves nothing about the other rows. So this check compares the table
# itself, part by part.
#
# Only a copy of a weight is compared: a table with at least one part that is equal to the
# weight's, bit by bit. A table that an exporter computed shares no part with a weight.
class LookupTableCheck:
    """The comparison of the file's tables with the weights; see `RuntimeCheck`."""

    name = "tables"

    def applies(self, context: CheckContext) -> bool:
        """Return True if the file looks rows up in a copy of a weight."""
        return any(True for _ in _read_copies(context))  # stops early: each table is read whole

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare every part of every such table with PyTorch's."""
        tables = list(_read_copies(context))
        problems = [problem for table in tables for problem in _find_wrong_parts(table)]
        return CheckResult(
            check=self.name,
            status=Status.FAIL if problems else Status.PASS,
            message="; ".join(problems),
            metrics={"tables": len(tables)},
        )


def hash_table_parts(array: Array) -> tuple[str, ...]:
    """Return a digest of each part of a table, "" for a part that has only zeros.

    Args:
        array: `[rows, columns]`; divided into up to 64 parts of nearly equal size.
    """
    data = np.ascontiguousarray(array).view(np.uint8)
    pieces = np.array_split(data, min(_PARTS, len(data)))
    return tuple(
        hashlib.sha256(piece.tobytes()).hexdigest()[:16] if piece.any() else "" for piece in pieces
    )


def _read_copies(context: CheckContext) -> Iterator[_TableCopy]:
    """Yield each table with the weight that shares most parts with it.

    Yields nothing if the file cannot be read: the check `wellformed` reports that.
    """
    try:
        for tensor in _find_lookup_tables(read_model(context.path)):
            dtype, shape = TensorProto.DataType.Name(tensor.data_type), tuple(tensor.dims)
            weights = [
                table
                for table in context.reference.tables
                if (table.dtype, table.shape) == (dtype, shape)
            ]
            if not weights:
                continue
            array = numpy_helper.to_array(tensor, base_dir=str(context.path.parent))
            parts = hash_table_parts(array)
            shared = [
                sum(
                    bool(one) and one == other
                    for one, other in zip(parts, weight.parts, strict=True)
                )
                for weight in weights
            ]
            if any(shared):
                weight = weights[shared.index(max(shared))]
                yield _TableCopy(tensor.name, shape[0], parts, weight.parts)
    except (UnreadableModel, OSError, ValueError, onnx.checker.ValidationError):
        return


def _find_lookup_tables(model: ModelProto) -> Iterator[TensorProto]:
    """Yield stored tensors from which a node selects rows by an index that is not stored."""
    graph = model.graph
    fixed = {tensor.name for tensor in graph.initializer}
    fixed |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    names = {
        node.input[0]
        for node in graph.node
        if node.op_type == "Gather"
        and not normalize_domain(node.domain)
        and node.input[1] not in fixed
    }
    for tensor in graph.initializer:
        if tensor.name in names and len(tensor.dims) == 2 and tensor.dims[0] >= MIN_ROWS:
            yield tensor


def _find_wrong_parts(table: _TableCopy) -> Iterator[str]:
    size = -(-table.rows // len(table.parts))
    pairs = zip(table.parts, table.weight_parts, strict=True)
    wrong = [index for index, (part, expected) in enumerate(pairs) if part != expected]
    if wrong:
        row = min(wrong[0] * size, table.rows - 1)
        yield (
            f"{len(wrong)} of {len(table.parts)} parts of the table '{table.name}' are not "
            f"PyTorch's, the first near row {row} of {table.rows}"
        )


class InvalidMetric(Exception):
    """The function of a metric fails or returns no number."""


def compute_metric(
    function: Callable[..., object], name: str, run: Callable[..., Mapping[str, OnnxValue]]
) -> float:
    """Return the number that a function of the project computes with a model or a file.

    Raises:
        InvalidMetric: If it raises an exception, or returns something else.
    """
    try:
        value = function(run)
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise InvalidMetric(f"{name} raises {type(error).__name__}: {text}") from error
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not np.isfinite(value):
        raise InvalidMetric(f"{name} returns {str(value)[:80]!r}, expected a finite number")
    return float(value)


class MetricCheck:
    """The metric of the manifest, for the file and for PyTorch; see `RuntimeCheck`."""

    name = "metric"

    def applies(self, context: CheckContext) -> bool:
        """Return True if the contract has a metric."""
        return context.spec.metric is not None

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the metric with both promises; a file of zeros must break one of them."""
        metric, known = context.spec.metric, context.reference.metric
        if metric is None or not known:
            message = "PyTorch's metric is missing; export the model again"
            return CheckResult(check=self.name, status=Status.ERROR, message=message)
        names = [output.name for output in context.spec.outputs]

        def run(**inputs: Array) -> Mapping[str, OnnxValue]:
            return dict(zip(session.output_names, session.run(inputs), strict=True))

        try:
            if set(session.output_names) != set(names):
                raise InvalidMetric(f"the outputs are {', '.join(session.output_names)}")
            value = compute_metric(context.load_function(metric.call), metric.call, run)
        except InvalidMetric as error:
            return CheckResult(check=self.name, status=Status.ERROR, message=str(error))
        problems = find_metric_problems(metric, value, known[0])
        status, message = Status.PASS, ""
        if problems:
            status, message = Status.FAIL, "; ".join(problems)
        elif not find_metric_problems(metric, known[-1], known[0]):
            status = Status.INCONCLUSIVE
            message = f"a file that returns zeros has the metric {known[-1]:.6g}, which passes, too"
        figures: dict[str, int | float | str] = {"metric": value, "pytorch": known[0]}
        return CheckResult(check=self.name, status=status, message=message, metrics=figures)


def find_metric_problems(metric: Metric, value: float, pytorch: float) -> list[str]:
    """Return the promises of a metric that a value breaks."""
    problems = []
    if metric.least is not None and value < metric.least:
        text = f"{metric.call} is {value:.6g}, at least {metric.least:g} is promised"
        problems.append(f"{text} (PyTorch: {pytorch:.6g})")
    if metric.drop is not None and pytorch - value > metric.drop:
        text = f"{metric.call} drops by {pytorch - value:.4g}, from {pytorch:.6g} to {value:.6g}"
        problems.append(f"{text}; at most {metric.drop:g} is promised")
    return problems


class RolloutCheck:
    """The loop of a recurrent file, each step with its own outputs; see `RuntimeCheck`."""

    name = "rollout"

    def applies(self, context: CheckContext) -> bool:
        """Return True if the contract has a rollout."""
        return context.spec.rollout is not None

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the outputs and the greedy tokens of each step; stop at the first difference."""
        samples = context.reference.rollout
        try:
            steps = [
                context.samples.read(context.folder.rollout(sample.index), context.spec)
                for sample in samples
            ]
        except DamagedSample as error:
            return self._report(Status.ERROR, f"PyTorch's steps cannot be read: {error}")
        if not steps:
            return self._report(Status.ERROR, "PyTorch's steps are missing; export the model again")
        states: dict[str, Array] = {}
        figures: dict[str, int | float | str] = {"max_abs": 0.0, "of_limit": 0.0, "ties": 0}
        for number, (sample, data) in enumerate(zip(samples, steps, strict=True)):
            inputs = {name: states.get(name, array).copy() for name, array in data.inputs.items()}
            problem = ""
            try:
                values = session.run(inputs)
                if list(session.output_names) != [each.name for each in context.spec.outputs]:
                    problem = f"the file's outputs are {', '.join(session.output_names)}"
            except RunFailure as failure:
                problem = f"the runtime fails: {failure}"
            if not problem:
                inner = apply_sample_noise(sample, context)
                compared = compare_values(values, data, sample, inner, device)
                following = steps[number + 1] if number + 1 < len(steps) else None
                states, problem = _feed_values(values, data, following, inner, (figures, device))
                for name, each in compared:
                    problem = problem or (each.problem and f"{name}: {each.problem}")
                    figures["max_abs"] = max(float(figures["max_abs"]), each.max_abs)
                    figures["of_limit"] = max(float(figures["of_limit"]), each.limit_ratio)
            if problem:
                figures |= {"steps": number}
                del figures["of_limit"]  # no review of single calls helps
                message = f"step {number + 1} of {len(steps)}: {problem}"
                return self._report(Status.FAIL, message, figures)
        figures["steps"] = len(steps)
        first = steps[0].outputs
        if all(_have_same_values(step.outputs, first) for step in steps):
            message = "every step of PyTorch has the same outputs; give the model other inputs"
            return self._report(Status.INCONCLUSIVE, message, figures)
        return self._report(Status.PASS, "", figures)

    def _report(
        self, status: Status, message: str, figures: Mapping[str, int | float | str] | None = None
    ) -> CheckResult:
        metrics = dict(figures or {})
        return CheckResult(check=self.name, status=status, message=message, metrics=metrics)


def _have_same_values(outputs: Sequence[OnnxValue], others: Sequence[OnnxValue]) -> bool:
    pairs = zip(outputs, others, strict=True)
    return all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _feed_values(
    values: Sequence[OnnxValue],
    data: SampleData,
    following: SampleData | None,
    context: CheckContext,
    state: tuple[dict[str, int | float | str], str],
) -> tuple[dict[str, Array], str]:
    """Return the inputs of the next step, and a problem if the file selects another token.

    If both tokens differ by no more than the errors of their logits, PyTorch's token is used.
    """
    figures, device = state
    items = {item.name: item for item in context.spec.inputs}
    states: dict[str, Array] = {}
    rollout = context.spec.rollout
    for index, output in enumerate(context.spec.outputs):
        target = rollout.feeds.get(output.name) if rollout else None
        if target is None:
            continue
        value, expected = np.asarray(values[index]), np.asarray(data.outputs[index])
        if not ("int" in items[target].dtype and "float" in output.dtype):
            states[target] = value
            continue
        if value.shape != expected.shape:
            continue  # the comparison reports it
        if value.ndim == len(items[target].shape) + 1 and value.ndim > 2:
            value, expected = value[:, -1:], expected[:, -1:]
        tokens, right = value.argmax(-1), expected.argmax(-1)
        chosen, best = (np.take_along_axis(expected, t[..., None], -1) for t in (tokens, right))
        margin = float((best - chosen).max())
        limit, _ = choose_limit(expected, None, OutputContext(context, index, device, False))
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        if np.isnan(value).any() or margin > 2 * (limit.allowed_error(scale) if limit else 0.0):
            row = tuple(int(each) for each in np.argwhere(tokens != right)[0])
            pair = f"token {tokens[row]} in place of {right[row]}"
            error = float(np.abs(value - expected).max())
            problem = f"the file selects {pair}; PyTorch's margin is {margin:.3g}"
            return states, f"{problem}, and the largest error of '{output.name}' is {error:.3g}"
        figures["ties"] = int(figures["ties"]) + int((tokens != right).any())
        if following is not None:
            states[target] = following.inputs[target]
    return states, ""


#: Check -> kind of its samples.
SAMPLE_KINDS: Mapping[str, str] = {
    "parity": "declared",
    "axes": "axis",
    "cases": "case",
    "values": "values",
}
_Conclude = Callable[[CheckContext, Sequence[Sample], CheckResult], CheckResult]


# - `parity`: the declared inputs.
# - `axes`: other sizes of the dynamic axes.
# - `cases`: the other input sets of the manifest.
# - `values`: other values of one input. A trace stores the number of turns of a loop, the chosen
#   branch and every number that was read from a tensor. Such a file passes with these values.
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCheck:
    """The comparison of all samples of one kind; see `RuntimeCheck`."""

    name: str
    is_promised: Callable[[CheckContext], bool]
    find_missing: Callable[[CheckContext, Sequence[Sample]], str] = lambda _, __: ""
    """Return the samples that are missing, or "" if all exist."""
    conclude: _Conclude = lambda _, __, result: result
    """Return the final result of a comparison that passed."""

    def applies(self, context: CheckContext) -> bool:
        """Return True if the contract has the promise."""
        return self.is_promised(context)

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the outputs for every sample of the kind with PyTorch's."""
        samples = select_samples(self.name, context)
        if missing := self.find_missing(context, samples):
            message = f"PyTorch's outputs are missing for {missing}: nothing was compared"
            return CheckResult(check=self.name, status=Status.ERROR, message=message)
        result = compare_samples(self.name, samples, context, session, device)
        is_pass = result.status is Status.PASS
        return self.conclude(context, samples, result) if is_pass else result


def select_samples(check: str, context: CheckContext) -> list[Sample]:
    """Return the samples that the check compares."""
    kind = SAMPLE_KINDS[check]
    # The limits of a short proof come from all samples, as in the full one.
    reference = context.reference.shorten() if context.is_short else context.reference
    return [sample for sample in reference.samples if sample.kind == kind]


def _find_missing_declared(_context: CheckContext, samples: Sequence[Sample]) -> str:
    return "" if samples else "the declared inputs"


def _find_missing_cases(context: CheckContext, samples: Sequence[Sample]) -> str:
    names = {sample.name for sample in samples}
    return ", ".join(case.name for case in context.spec.cases if case.name not in names)


def _input_axes(context: CheckContext) -> list[Axis]:
    return [axis for axis in context.spec.axes if axis.example is not None]


def _conclude_axes(
    context: CheckContext, samples: Sequence[Sample], result: CheckResult
) -> CheckResult:
    """Add the range of tested sizes, or report axes that no sample changes."""
    untested, ranges = [], []
    for axis in _input_axes(context):
        sizes = {sample.axes.get(axis.name, axis.example) for sample in samples} | {axis.example}
        tested = [size for size in sizes if size is not None]
        if len(tested) == 1 and axis.is_free:
            untested.append(f"'{axis.name}'")
        ranges.append(f"{axis.name} {min(tested)} to {max(tested)}")
    if not untested:
        metrics = {**result.metrics, "proved": ", ".join(ranges)}
        return result.model_copy(update={"metrics": metrics})
    function = context.spec.inputs_from
    fix = "widen min and max, or declare a fixed size in the shape"
    if function is not None and not function.takes_sizes:
        fix = (
            f"{function.function} has no parameter for sizes; add one, which receives a dict of "
            "sizes by axis name, or declare a fixed size in the shape"
        )
    message = f"only the exported size was tested for {', '.join(untested)}: {fix}"
    return result.model_copy(update={"status": Status.INCONCLUSIVE, "message": message})


PARITY = SampleCheck(name="parity", is_promised=lambda _: True, find_missing=_find_missing_declared)
AXES = SampleCheck(
    name="axes",
    is_promised=lambda context: bool(_input_axes(context)),
    conclude=_conclude_axes,
)
CASES = SampleCheck(
    name="cases",
    is_promised=lambda context: bool(context.spec.cases),
    find_missing=_find_missing_cases,
)
VALUES = SampleCheck(
    name="values", is_promised=lambda context: bool(select_samples("values", context))
)
SAMPLE_CHECKS: tuple[RuntimeCheck, ...] = (PARITY, AXES, CASES, VALUES)


NOTE_PREFIX = "fully masked rows: "


def describe_masked_samples(
    context: CheckContext, session: Session, device: str
) -> tuple[str, ...]:
    """Return a note for each input without allowed elements on which the file differs."""
    samples = [each for each in context.reference.samples if each.kind == "masked"]
    names = [
        sample.changed_input
        for sample in samples
        if compare_samples("masked", [sample], context, session, device).status is Status.FAIL
    ]
    return tuple(
        f"{NOTE_PREFIX}PyTorch and the file differ if '{name}' allows no element of a row, because "
        "a softmax over no element has no defined result; keep an allowed element in every row"
        for name in names
    )
