"""PyTorch's loop of a recurrent model: the steps that the file has to repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporter.checks.next_token import apply_search
from exporter.checks.protocol import CheckedFile, hash_sample, write_sample
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Input, ModelSpec
from exporter.manifest.resolved.keys import Search
from exporter.records.record import Stage, Status
from exporter.runtimes import Session
from exporter.worker.inputs.call import Array, Tensors, to_numpy
from exporter.worker.model.generation import GeneratorPart, Loop, wrap_calls
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure, format_message
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    Outputs,
    build_float64_model,
    run_in_float64,
    run_model,
    to_value,
)
from exporter.worker.reference.noise import LARGEST_NOISE, compute_noise, compute_scale
from exporter.worker.reference.rollout_functions import (
    compute_constants,
    place_constants,
    require_loop,
    run_loop,
)

_FIX_OF_STEPS = (
    "the interface lacks a state, or PyTorch computes a prompt in another way than its tokens one "
    "by one; correct the model"
)


def compute_reference(
    model: Model, spec: ModelSpec, inputs: Tensors, job_folder: JobFolder, root: Path
) -> tuple[Sample, ...]:
    """Return the samples of all steps, which begin with the declared inputs.

    A step of a rollout receives outputs of the step before it: states, caches, and the token with
    the largest logit. The file has to run the same loop with its own outputs; see
    `checks/rollout.py`.

    The steps of a model that generates begin with each prompt and an empty cache, and have the
    tokens of `generate`. The steps of another model have the outputs of the loop that the entry
    names, if it names one.

    Raises:
        Failure: Stage `source`, if PyTorch rejects its own outputs as the next inputs, or if the
            loop differs from `generate` or from the loop of the project.
    """
    constants = compute_constants(spec, root)
    inputs = place_constants(spec, constants, 0, inputs)
    returned = run_loop(model, spec, inputs, root)
    loops = [Loop("", inputs, {})]
    if isinstance(model, GeneratorPart):
        with wrap_calls(Stage.SOURCE):
            loops = [*model.list_loops(spec)]
    if not loops[0].request and not (spec.rollout and spec.rollout.loop):
        _require_no_generator(model)
    wide_model = build_float64_model(model)[0]
    samples: list[Sample] = []
    search = spec.generate.search if spec.generate else Search()
    feeds = spec.rollout.feeds if spec.rollout else {}
    token_input = feeds.get("logits", "")
    for loop in loops:
        steps = _count_steps(spec, loop)
        generated, tokens = _generate(model, loop, steps)
        steps = len(generated) or steps
        has_settings = bool(tokens) and search != Search()
        inputs, calls = loop.inputs, list[dict[str, Array]]()
        wide_inputs = dict(inputs)
        for number in range(steps):
            index = len(samples)
            outputs = _run_step(model, spec, inputs, index)
            outputs = require_loop(spec, number, outputs, () if generated else returned)
            exact = run_in_float64(wide_model, spec, wide_inputs)
            sample = _write_step(job_folder, index, spec, inputs, outputs, exact)
            name = f"{loop.name}step {index + 1}"
            is_prompt = number < len(loop.tokens)
            facts = {"name": name, "begins": number == 0, "is_prompt": is_prompt}
            samples.append(sample.model_copy(update=facts))
            calls.append({each: to_numpy(inputs[each]) for each in inputs if has_settings})
            if generated and not is_prompt:
                fix = _FIX_OF_STEPS if loop.tokens else "correct `feeds`"
                outputs = _require_generated(spec, name, outputs, generated[number], fix)
                prompt = 1 + len(loop.tokens)
                _require_tokens(search, name, generated[number], tokens[number], calls, prompt)
            following = advance_inputs(spec, inputs, outputs)
            if is_prompt or has_settings:
                following[token_input] = tokens[number]
            following = place_constants(spec, constants, number + 1, following)
            # The float64 run gets its own states and PyTorch's tokens, so its choices are the same.
            wide_inputs = dict(following)
            for source, target in feeds.items():
                if exact is not None and following[target].is_floating_point():
                    position = [output.name for output in spec.outputs].index(source)
                    wide_inputs[target] = _require_tensor(exact[position])
            inputs = following
    if not samples:
        message = "rollout: no prompt is within the sizes of the axes; allow a batch of 1, "
        raise Failure(Stage.SOURCE, f"{message}`past` of 0 and `length` of 1", status=Status.FAIL)
    return tuple(samples)


def _generate(
    model: Model, loop: Loop, steps: int
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Return the logits and the next token of each step of `generate`; none of another model.

    Steps that read the prompt have the tokens of the prompt, and no logits.
    """
    if not (isinstance(model, GeneratorPart) and loop.request and steps):
        return (), ()
    logits, tokens = model.generate_tokens(loop.request, steps - len(loop.tokens))
    return (torch.empty(0),) * len(loop.tokens) + logits, loop.tokens + tokens


def _count_steps(spec: ModelSpec, loop: Loop) -> int:
    """Return the steps of a loop that the sizes of the axes allow; 0 if its prompt is none."""
    steps = spec.rollout.steps if spec.rollout else 0
    if not loop.name:
        return steps
    steps += len(loop.tokens)
    pairs = [(each.shape, loop.inputs[each.name].shape) for each in spec.inputs]
    dims = [pair for shapes in pairs for pair in zip(*shapes, strict=True)]
    sizes = spec.complete_sizes({dim: size for dim, size in dims if isinstance(dim, str)})
    if any(isinstance(dim, int) and dim != size for dim, size in dims):
        return 0
    for axis, size in ((spec.find_axis(dim), size) for dim, size in sizes.items()):
        if not axis.allows(size):
            return 0
        if axis.rule and axis.max is not None:  # the total grows by a token in each step
            steps = min(steps, axis.max - size + 1)
    return steps if steps > len(loop.tokens) else 0


def _run_step(model: Model, spec: ModelSpec, inputs: Tensors, index: int) -> Outputs:
    try:
        with BufferSnapshot(model):
            return run_model(model, spec, inputs)
    except Failure as failure:
        fix = "correct `feeds`, or the sizes that the model accepts"
        message = f"rollout: PyTorch fails at step {index + 1}: {failure.message}; {fix}"
        status = Status.FAIL if index else Status.ERROR
        raise Failure(Stage.SOURCE, format_message(message), status=status) from failure


def _write_step(
    job_folder: JobFolder,
    index: int,
    spec: ModelSpec,
    inputs: Tensors,
    outputs: Outputs,
    exact: Outputs | None,
) -> Sample:
    noise = compute_noise([(outputs, exact)])
    sample = Sample(
        index=index,
        name="",
        kind="rollout",
        axes=measure_sizes(spec.inputs, inputs),
        scales=tuple(compute_scale(output) for output in outputs),
        exact=exact is not None,
        noise=noise.shares,
        large_noise=noise.large,
    )
    path = job_folder.locate(sample)
    write_sample(
        path,
        [to_numpy(inputs[item.name]) for item in spec.inputs],
        [to_value(output) for output in outputs],
        [to_value(output) for output in exact or ()],
    )
    return sample.model_copy(update={"sha256": hash_sample(path)})


def _require_no_generator(model: Model) -> None:
    """Fail for a model of transformers that generates: its loop needs an oracle."""
    for part in model.modules():
        can_generate: Any = getattr(part, "can_generate", None)
        if callable(can_generate) and can_generate():
            message = f"rollout: {type(part).__name__} generates, and nothing compares this loop "
            message += "with `generate`; use exporter = 'transformers' with the key `generate`, or "
            message += "name a function in `rollout.loop` that returns the logits of `generate`"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)


def _require_generated(
    spec: ModelSpec, name: str, outputs: Outputs, expected: torch.Tensor, fix: str
) -> Outputs:
    """Return the outputs of a step with the logits of `generate`, `[batch, vocabulary]`.

    Raises:
        Failure: If they differ by more than rounding.
    """
    position = [output.name for output in spec.outputs].index("logits")
    value = _require_tensor(outputs[position])
    error, scale = math.inf, float(expected.abs().max())
    if value[:, -1].shape == expected.shape:
        error = float((value[:, -1].double() - expected.double()).abs().max())
    if not error <= LARGEST_NOISE.get(value.dtype, 1e-3) * scale:
        message = f"rollout: {name} has other logits than `generate`, by up to {error:.3g} of "
        message += f"{scale:.3g}; {fix}"
        raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    return (*outputs[:position], expected[:, None].to(value.dtype), *outputs[position + 1 :])


def _require_tokens(
    search: Search,
    name: str,
    logits: torch.Tensor,
    tokens: torch.Tensor,
    steps: Sequence[Mapping[str, Array]],
    prompt: int,
) -> None:
    """Fail if `generate` has another token than a loop with the settings of the entry, if any."""
    if search == Search():
        return
    values = to_numpy(logits)
    scores = apply_search(search, values, steps, prompt)
    chosen = scores.argmax(-1)
    margins = scores.max(-1) - np.take_along_axis(scores, to_numpy(tokens), -1)[:, 0]
    if (margins > 1e-6 * np.abs(values).max()).any():
        row = int(margins.argmax())
        message = f"rollout: {name}, row {row + 1}: `generate` selects token {int(tokens[row])}, a "
        message += f"loop with `generate.search` of the entry {chosen[row]}; remove what differs "
        message += "from `search`, so that a note has its name"
        raise Failure(Stage.SOURCE, message, status=Status.FAIL)


def measure_sizes(items: Sequence[Input], inputs: Tensors) -> dict[str, int]:
    return {
        dim: size
        for item in items
        for dim, size in zip(item.shape, inputs[item.name].shape, strict=False)
        if isinstance(dim, str)
    }


def advance_inputs(spec: ModelSpec, inputs: Tensors, outputs: Outputs) -> Tensors:
    """Return the inputs of the next step.

    An input that no output feeds keeps its values, but the positions of a model that generates
    continue. Along an axis with another size, a mask and the like repeat their last values,
    `arange` continues, and others keep their last values.
    """
    feeds = spec.rollout.feeds if spec.rollout else {}
    items = {item.name: item for item in spec.inputs}
    following = dict(inputs)
    for position, output in enumerate(spec.outputs):
        if target := feeds.get(output.name):
            value, dtype = _require_tensor(outputs[position]), items[target].dtype
            if "int" in dtype and "float" in output.dtype:  # the token with the largest logit
                is_text = value.ndim == len(items[target].shape) + 1 and value.ndim > 2
                value = (value[:, -1:] if is_text else value).argmax(-1).to(getattr(torch, dtype))
            following[target] = value
    targets = [items[name] for name in feeds.values()]
    sizes = measure_sizes(targets, following)
    sizes = spec.complete_sizes(measure_sizes(spec.inputs, inputs) | sizes)
    for item in spec.inputs:
        if item in targets:
            continue
        if spec.generate and item.name == "position_ids":
            last = inputs[item.name][..., -1:]
            count = sizes.get(str(item.shape[-1]), last.shape[-1])
            following[item.name] = last + 1 + torch.arange(count, dtype=last.dtype)
        else:
            following[item.name] = _resize(inputs[item.name], item, sizes)
    return following


def _resize(value: torch.Tensor, item: Input, sizes: dict[str, int]) -> torch.Tensor:
    for axis, dim in enumerate(item.shape):
        before = value.shape[axis]
        after = sizes.get(dim, before) if isinstance(dim, str) else before
        if item.fill.kind == "arange" and dim in sizes and axis == value.ndim - 1:
            first = value.narrow(axis, before - 1, 1) + 1
            value = first + torch.arange(after, dtype=value.dtype)
        elif after > before:
            last = value.narrow(axis, before - 1, 1)
            value = torch.cat([value, *[last] * (after - before)], axis)
        elif after < before:
            value = value.narrow(axis, before - after, after)
    return value


def _require_tensor(value: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    if isinstance(value, list):
        raise Failure(Stage.SOURCE, "rollout: an output is a list; feed a tensor")
    return value


def make_loops(
    model: Model, checked: CheckedFile, session: Session
) -> tuple[Callable[[], None], Callable[[], None], int] | None:
    """Return the loops of file and PyTorch after a prompt of one row, and their tokens."""
    spec, steps = checked.spec, checked.reference.rollout
    if not (steps and spec.generate and spec.rollout and isinstance(model, GeneratorPart)):
        return None
    feeds, names = spec.rollout.feeds, [output.name for output in spec.outputs]
    loops = (loop for loop in model.list_loops(spec) if loop.name.startswith("prompt 1 x "))
    prompt = next(loops)
    folders = [checked.folder.locate(s) for s in steps if s.name.startswith(prompt.name)]
    calls = [checked.samples.read(folder, spec).inputs for folder in folders]

    def run_file() -> None:
        states: dict[str, Array] = {}
        for inputs in calls:
            values = zip(names, session.run({**inputs, **states}), strict=True)
            states = {feeds[name]: np.asarray(each) for name, each in values if name in feeds}
            states[feeds["logits"]] = states[feeds["logits"]][:, -1:].argmax(-1)

    def run_pytorch() -> None:
        model.generate_tokens(prompt.request, len(calls))

    return (run_file, run_pytorch, len(calls)) if calls else None
