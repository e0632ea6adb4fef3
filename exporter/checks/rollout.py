"""The check of a loop: the file repeats PyTorch's steps with its own outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from exporter.checks.comparison.compare_samples import apply_sample_noise, compare_values
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import OutputContext
from exporter.checks.protocol import CheckContext, DamagedSample, RuntimeCheck, SampleData
from exporter.jobs import Reference, Sample
from exporter.records.record import CheckResult, Status
from exporter.runtimes import RunFailure, Session
from exporter.runtimes.session import Array, OnnxValue


def list_loops(reference: Reference) -> list[list[Sample]]:
    """Return the steps of each loop of PyTorch, which begins with inputs of its own."""
    loops: list[list[Sample]] = []
    for step in reference.rollout:
        if step.begins:
            loops.append([])
        if loops:
            loops[-1].append(step)
    return loops


@partial(RuntimeCheck, "rollout", applies=lambda context: context.spec.rollout is not None)
def check_rollout(context: CheckContext, session: Session, device: str) -> CheckResult:
    """Compare the outputs and the greedy tokens of each step; stop at the first difference."""
    samples = context.reference.rollout
    try:
        steps = [
            context.samples.read(context.folder.locate(sample), context.spec) for sample in samples
        ]
    except DamagedSample as error:
        return _report(Status.ERROR, f"PyTorch's steps cannot be read: {error}")
    if not steps:
        return _report(Status.ERROR, "PyTorch's steps are missing; export the model again")
    states: dict[str, Array] = {}
    figures: dict[str, int | float | str] = {"max_abs": 0.0, "of_limit": 0.0, "ties": 0}
    least, tokens = context.spec.tokens, list[tuple[Array, Array]]()
    for number, (sample, data) in enumerate(zip(samples, steps, strict=True)):
        states = {} if sample.begins else states
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
            states, problem = _feed_values(
                values, data, following, inner, (figures, device, tokens)
            )
            for name, each in compared:
                if least is None:
                    problem = problem or (each.problem and f"{name}: {each.problem}")
                figures["max_abs"] = max(float(figures["max_abs"]), each.max_abs)
                figures["of_limit"] = max(float(figures["of_limit"]), each.limit_ratio)
        if problem:
            figures |= {"steps": number}
            del figures["of_limit"]  # no review of single calls helps
            message = f"{sample.name} of {len(steps)}: {problem}"
            return _report(Status.FAIL, message, figures)
    figures["steps"] = len(steps)
    first = steps[0].outputs
    pairs = (pair for step in steps for pair in zip(step.outputs, first, strict=True))
    if all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in pairs):
        message = "every step of PyTorch has the same outputs; give the model other inputs"
        return _report(Status.INCONCLUSIVE, message, figures)
    if least is None:
        return _report(Status.PASS, "", figures)
    del figures["of_limit"], figures["ties"]  # the values and the margins are no promises
    status, message, figures["tokens"] = _judge_tokens(least, tokens)
    return _report(status, message, figures)


def _report(
    status: Status, message: str, figures: Mapping[str, int | float | str] | None = None
) -> CheckResult:
    metrics = dict(figures or {})
    return CheckResult(check="rollout", status=status, message=message, metrics=metrics)


def find_tie_margin(logits: Array, output: OutputContext) -> float:
    """Return the largest difference of two of PyTorch's logits that is within their errors."""
    limit, _ = choose_limit(logits, None, output)
    scale = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    return 2 * limit.allowed_error(scale) if limit else 0.0


def _judge_tokens(least: float, tokens: Sequence[tuple[Array, Array]]) -> tuple[Status, str, str]:
    """Return the status of a share of equal tokens, its message, and the share.

    It is inconclusive if a file that always selects the same token would keep the promise.
    """
    selected, right = (np.concatenate([pair[n].ravel() for pair in tokens]) for n in (0, 1))
    numbers, counts = np.unique(right, return_counts=True)
    equal = int((selected == right).sum())
    status, message, share = Status.PASS, "", f"{equal} of {right.size}"
    if equal < least * right.size:
        message = f"{share} tokens are PyTorch's, a share of {equal / right.size:.3g}"
        status, message = Status.FAIL, f"{message}; at least {least:g} is promised"
    elif counts.max() >= least * right.size:
        message = f"a file that always selects token {numbers[counts.argmax()]} has "
        message += f"{counts.max()} of {right.size} right, which passes, too"
        status = Status.INCONCLUSIVE
    return status, message, share


def _feed_values(
    values: Sequence[OnnxValue],
    data: SampleData,
    following: SampleData | None,
    context: CheckContext,
    state: tuple[dict[str, int | float | str], str, list[tuple[Array, Array]]],
) -> tuple[dict[str, Array], str]:
    """Return the inputs of the next step, and a problem if the file selects another token.

    PyTorch's token is used if both differ by no more than the errors of their logits, or if a share
    of equal tokens is promised. `state`: The figures, the device, and the tokens so far.
    """
    figures, device, selections = state
    is_share = context.spec.tokens is not None
    items = {item.name: item for item in context.spec.inputs}
    states: dict[str, Array] = {}
    rollout = context.spec.rollout
    for index, output in enumerate(context.spec.outputs):
        target = rollout.feeds.get(output.name) if rollout else None
        if target is None:
            continue
        value, expected = np.asarray(values[index]), np.asarray(data.outputs[index])
        if value.shape != expected.shape:
            shapes = f"shape {list(value.shape)}, PyTorch gives {list(expected.shape)}"
            return states, f"output '{output.name}': {shapes}"
        if not ("int" in items[target].dtype and "float" in output.dtype):
            states[target] = value
            continue
        if value.ndim == len(items[target].shape) + 1 and value.ndim > 2:
            value, expected = value[:, -1:], expected[:, -1:]
        tokens, right = value.argmax(-1), expected.argmax(-1)
        chosen, best = (np.take_along_axis(expected, t[..., None], -1) for t in (tokens, right))
        margin = float((best - chosen).max())
        tie = find_tie_margin(expected, OutputContext(context, index, device, False))
        if np.isnan(value).any() or (margin > tie and not is_share):
            # NaN at the place of PyTorch's token gives the same index.
            wrong = (tokens != right) | np.isnan(value).any(-1)
            row = tuple(int(each) for each in np.argwhere(wrong)[0])
            pair = f"token {tokens[row]} in place of {right[row]}"
            error = float(np.abs(value - expected).max())
            problem = f"the file selects {pair}; PyTorch's margin is {margin:.3g}"
            return states, f"{problem}, and the largest error of '{output.name}' is {error:.3g}"
        selections.append((tokens, right))
        figures["ties"] = int(figures["ties"]) + int((tokens != right).any())
        if following is not None:
            states[target] = following.inputs[target]
    return states, ""
