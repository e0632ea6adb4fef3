"""The check of a loop: the file repeats PyTorch's steps with its own outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from exporter.checks.comparison.compare_samples import apply_sample_noise, compare_values
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import ComparedOutput
from exporter.checks.next_token import apply_search
from exporter.checks.protocol import CheckedFile, DamagedSample, RuntimeCheck, SampleData
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


@partial(RuntimeCheck, "rollout", applies=lambda checked: checked.spec.rollout is not None)
def check_rollout(checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
    """Compare the outputs and the greedy tokens of each step; stop at the first difference."""
    samples = checked.reference.rollout
    try:
        steps = [
            checked.samples.read(checked.folder.locate(sample), checked.spec) for sample in samples
        ]
    except DamagedSample as error:
        return _report(Status.ERROR, f"PyTorch's steps cannot be read: {error}")
    if not steps:
        return _report(Status.ERROR, "PyTorch's steps are missing; export the model again")
    run = _Rollout(checked, device_name)
    for number, (sample, data) in enumerate(zip(samples, steps, strict=True)):
        following = steps[number + 1] if number + 1 < len(steps) else None
        if problem := run.compare_step(session, sample, data, following):
            message = f"{sample.name} of {len(steps)}: {problem}"
            figures = {"max_abs": run.max_abs, "ties": run.ties, "steps": number}
            # Without the share no review follows: it helps only if numbers differ.
            if 1.0 < run.of_limit < np.inf:
                figures["of_limit"] = run.of_limit
            return _report(Status.FAIL, message, figures)
    figures = {"max_abs": run.max_abs, "of_limit": run.of_limit, "ties": run.ties}
    figures |= {"steps": len(steps)}
    if _are_outputs_constant(steps):
        message = "every step of PyTorch has the same outputs; give the model other inputs"
        return _report(Status.INCONCLUSIVE, message, figures)
    least = checked.spec.tokens
    if least is None:
        return _report(Status.PASS, "", figures)
    # The values and the margins are no promises.
    status, message, share = _judge_tokens(least, run.selected, run.right)
    return _report(status, message, {"max_abs": run.max_abs, "steps": len(steps), "tokens": share})


@dataclass(slots=True)
class _Rollout:
    """A loop with the file's own outputs, and the figures of its steps so far."""

    checked: CheckedFile
    device: str
    states: dict[str, Array] = field(default_factory=dict)
    """The inputs of the next step that outputs of this one feed."""
    max_abs: float = 0.0
    of_limit: float = 0.0
    inputs: list[Mapping[str, Array]] = field(default_factory=list)
    """PyTorch's inputs of each step of this loop."""
    prompt: int = 1
    """The steps of this loop with tokens of the prompt."""
    ties: int = 0
    """Steps with another token that is as good as PyTorch's."""
    selected: list[Array] = field(default_factory=list)
    """The file's tokens of each step."""
    right: list[Array] = field(default_factory=list)
    """PyTorch's tokens of each step."""

    def compare_step(
        self, session: Session, sample: Sample, data: SampleData, following: SampleData | None
    ) -> str:
        """Run a step of the file, compare it with PyTorch's, and return the problem or ""."""
        spec = self.checked.spec
        states = {} if sample.begins else self.states
        self.inputs = [*([] if sample.begins else self.inputs), data.inputs]
        self.prompt = (1 if sample.begins else self.prompt) + sample.is_prompt
        inputs = {name: states.get(name, array).copy() for name, array in data.inputs.items()}
        try:
            values = session.run(inputs)
        except RunFailure as failure:
            return f"the runtime fails: {failure}"
        if list(session.output_names) != [each.name for each in spec.outputs]:
            return f"the file's outputs are {', '.join(session.output_names)}"
        checked = apply_sample_noise(sample, self.checked)
        compared = compare_values(values, data, sample, checked, self.device)
        problem = self._feed(checked, values, data, following, is_prompt=sample.is_prompt)
        for name, each in compared:
            if spec.tokens is None:
                problem = problem or (each.problem and f"{name}: {each.problem}")
            self.max_abs = max(self.max_abs, each.max_abs)
            self.of_limit = max(self.of_limit, each.limit_ratio)
        others = [*self.inputs, *([following.inputs] if following else [])]
        return problem and problem + self._find_ignored(session, inputs, values, others)

    def _find_ignored(
        self,
        session: Session,
        inputs: Mapping[str, Array],
        values: Sequence[OnnxValue],
        others: Sequence[Mapping[str, Array]],
    ) -> str:
        """Return the input whose value of another step gives the file's outputs, too, or ""."""
        rollout = self.checked.spec.rollout
        for name in rollout.constants if rollout else ():
            changed = (each[name] for each in others if each[name].shape == inputs[name].shape)
            value = next((e for e in changed if not np.array_equal(e, inputs[name])), None)
            try:
                again = () if value is None else session.run({**inputs, name: value.copy()})
            except RunFailure:
                continue
            pairs = zip(values, again, strict=False)
            if again and all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs):
                return (
                    f"; the file ignores '{name}': its outputs are those for another step's value"
                )
        return ""

    def _feed(
        self,
        checked: CheckedFile,
        values: Sequence[OnnxValue],
        data: SampleData,
        following: SampleData | None,
        *,
        is_prompt: bool,
    ) -> str:
        """Set the inputs of the next step; return a problem if the file selects another token.

        `is_prompt`: Whether the next token is one of the prompt, so that no token is selected.
        """
        self.states = {}
        items = {item.name: item for item in checked.spec.inputs}
        feeds = checked.spec.rollout.feeds if checked.spec.rollout else {}
        for index, output in enumerate(checked.spec.outputs):
            if (target := feeds.get(output.name)) is None:
                continue
            value, expected = np.asarray(values[index]), np.asarray(data.outputs[index])
            if value.shape != expected.shape:
                shapes = f"shape {list(value.shape)}, PyTorch gives {list(expected.shape)}"
                return f"output '{output.name}': {shapes}"
            if not ("int" in items[target].dtype and "float" in output.dtype):
                self.states[target] = value
                continue
            if value.ndim == len(items[target].shape) + 1 and value.ndim > 2:
                value, expected = value[:, -1:], expected[:, -1:]
            compared = ComparedOutput(checked, index, self.device, False)
            if not is_prompt and (problem := self._select(value, expected, compared)):
                return problem
            if following is not None:
                self.states[target] = following.inputs[target]
        return ""

    def _select(self, logits: Array, expected: Array, checked_output: ComparedOutput) -> str:
        """Select the token with the largest logit or score, and compare it with PyTorch's.

        PyTorch's token is used if both differ by no more than the errors of their logits, or if a
        share of equal tokens is promised.
        """
        scores, expected_scores = logits, expected
        if generate := checked_output.checked.spec.generate:
            scores, expected_scores = (
                apply_search(generate.search, each[:, -1], self.inputs, self.prompt)[:, None]
                for each in (logits, expected)
            )
        tokens, right = scores.argmax(-1), expected_scores.argmax(-1)
        chosen, best = (
            np.take_along_axis(expected_scores, each[..., None], -1) for each in (tokens, right)
        )
        margin = float((best - chosen).max())
        is_worse = margin > find_tie_margin(expected, checked_output)
        if np.isnan(logits).any() or (is_worse and self.checked.spec.tokens is None):
            # NaN at the place of PyTorch's token gives the same index.
            wrong = (tokens != right) | np.isnan(logits).any(-1)
            row = tuple(int(each) for each in np.argwhere(wrong)[0])
            pair = f"token {tokens[row]} in place of {right[row]}"
            error = float(np.abs(logits - expected).max())
            problem = f"the file selects {pair}; PyTorch's margin is {margin:.3g}"
            return (
                f"{problem}, and the largest error of '{checked_output.output.name}' is {error:.3g}"
            )
        self.selected.append(tokens)
        self.right.append(right)
        self.ties += int((tokens != right).any())
        return ""


def _are_outputs_constant(steps: Sequence[SampleData]) -> bool:
    pairs = (pair for step in steps for pair in zip(step.outputs, steps[0].outputs, strict=True))
    return all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _report(
    status: Status, message: str, figures: Mapping[str, int | float | str] | None = None
) -> CheckResult:
    metrics = dict(figures or {})
    return CheckResult(check="rollout", status=status, message=message, metrics=metrics)


def find_tie_margin(logits: Array, checked_output: ComparedOutput) -> float:
    """Return the largest difference of two tokens' scores that is within PyTorch's errors."""
    generate = checked_output.checked.spec.generate
    penalty = generate.search.repetition_penalty if generate else 1.0
    limit, _ = choose_limit(logits, None, checked_output)
    scale = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    return 2 * max(penalty, 1 / penalty) * limit.allowed_error(scale) if limit else 0.0


def _judge_tokens(
    least: float, selected: Sequence[Array], right: Sequence[Array]
) -> tuple[Status, str, str]:
    """Return the status of a share of equal tokens, its message, and the share.

    It is inconclusive if a file that always selects the same token would keep the promise.
    """
    of_file, of_pytorch = (np.concatenate([each.ravel() for each in t]) for t in (selected, right))
    numbers, counts = np.unique(of_pytorch, return_counts=True)
    equal = int((of_file == of_pytorch).sum())
    share = f"{equal} of {of_pytorch.size}"
    if equal < least * of_pytorch.size:
        message = f"{share} tokens are PyTorch's, a share of {equal / of_pytorch.size:.3g}"
        return Status.FAIL, f"{message}; at least {least:g} is promised", share
    if counts.max() >= least * of_pytorch.size:
        message = f"a file that always selects token {numbers[counts.argmax()]} has "
        message += f"{counts.max()} of {of_pytorch.size} right, which passes, too"
        return Status.INCONCLUSIVE, message, share
    return Status.PASS, "", share
