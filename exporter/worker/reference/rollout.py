"""PyTorch's loop of a recurrent model: the steps that the file has to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exporter.checks.protocol import hash_sample, write_sample
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Input, ModelSpec, Output
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.model.components import ComponentModule
from exporter.worker.model.source_loader import Model
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


# A step of a rollout receives outputs of the step before it: states, caches, and the token with the
# largest logit. The file has to run the same loop with its own outputs; see `RolloutCheck`.
def compute_rollout(
    model: Model, spec: ModelSpec, inputs: Tensors, folder: JobFolder
) -> tuple[Sample, ...]:
    """Return the samples of all steps, which begin with the declared inputs; () without rollout.

    The steps of a component begin with the call that `generate` made after the prompt, and they
    have its tokens.

    Raises:
        Failure: Stage `source`, if PyTorch rejects its own outputs as the next inputs, or if the
            loop has other logits than `generate`.
    """
    if spec.rollout is None:
        return ()
    generated: tuple[torch.Tensor, ...] = ()
    if isinstance(model, ComponentModule):
        inputs = {item.name: model.inputs[item.name] for item in spec.inputs}
        generated = model.generate_logits(spec.rollout.steps)
    else:
        _require_no_generator(model)
    buffers, (wide_model, _) = BufferSnapshot(model), build_float64_model(model)
    wide_inputs, samples = dict(inputs), []
    for index in range(spec.rollout.steps):
        try:
            outputs = run_model(model, spec, inputs)
        except Failure as failure:
            fix = "correct `feeds`, or the sizes that the model accepts"
            message = f"rollout: PyTorch fails at step {index + 1}: {failure.message}; {fix}"
            status = Status.FAIL if index else Status.ERROR
            raise Failure(Stage.SOURCE, format_message(message), status=status) from failure
        buffers.restore()
        exact = run_in_float64(wide_model, spec, wide_inputs)
        write_sample(
            folder.rollout(index),
            [to_numpy(inputs[item.name]) for item in spec.inputs],
            [to_value(output) for output in outputs],
            [to_value(output) for output in exact or ()],
        )
        noise = compute_noise([(outputs, exact)])
        samples.append(
            Sample(
                index=index,
                name=f"step {index + 1}",
                kind="rollout",
                axes=measure_sizes(spec.inputs, inputs),
                scales=tuple(compute_scale(output) for output in outputs),
                exact=exact is not None,
                noise=noise.shares,
                large_noise=noise.large,
                sha256=hash_sample(folder.rollout(index)),
            )
        )
        following = advance_inputs(spec, inputs, outputs)
        if generated:
            _require_generated(spec, index, outputs, generated[index])
            following |= _take_tokens(spec, following, generated[index])
        # The float64 run gets its own states and PyTorch's tokens, so its choices are the same.
        wide_inputs = dict(following)
        for source, target in spec.rollout.feeds.items():
            if exact is not None and following[target].is_floating_point():
                position = [output.name for output in spec.outputs].index(source)
                wide_inputs[target] = _require_tensor(exact[position])
        inputs = following
    return tuple(samples)


def _require_no_generator(model: Model) -> None:
    """Fail for a model of transformers that generates: only a component has its tokens."""
    for part in model.modules() if isinstance(model, torch.nn.Module) else ():
        can_generate: Any = getattr(part, "can_generate", None)
        if callable(can_generate) and can_generate():
            message = f"rollout: {type(part).__name__} generates, and nothing compares this loop "
            message += "with `generate`; use exporter = 'transformers' with a `component`"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)


def _require_generated(
    spec: ModelSpec, index: int, outputs: Outputs, expected: torch.Tensor
) -> None:
    """Compare the logits of a step with those of `generate`, `[batch, vocabulary]`.

    Raises:
        Failure: If they differ by more than rounding.
    """
    position = [output.name for output in spec.outputs].index("logits")
    value = _require_tensor(outputs[position])
    share = LARGEST_NOISE.get(value.dtype, 1e-3)
    value, expected = value[:, -1].double(), expected.double()
    problem = f"has logits {[*value.shape]}, `generate` has {[*expected.shape]}"
    if value.shape == expected.shape:
        error, scale = float((value - expected).abs().max()), float(expected.abs().max())
        if error <= share * scale:
            return
        tokens, right = value.argmax(-1), expected.argmax(-1)
        row = int((tokens != right).int().argmax())
        pair = f"token {int(tokens[row])}, and `generate` selects {int(right[row])}"
        problem = f"selects {pair}; the logits differ by up to {error:.3g} of {scale:.3g}"
    message = f"rollout: step {index + 1} {problem}; correct `feeds` and `positions`"
    raise Failure(Stage.SOURCE, message, status=Status.FAIL)


def _take_tokens(spec: ModelSpec, following: Tensors, logits: torch.Tensor) -> Tensors:
    """Return the token of `generate` as the next input, which may differ among equal logits."""
    target = spec.rollout.feeds.get("logits") if spec.rollout else None
    if target is None:
        return {}
    tokens = following[target]
    return {target: logits.argmax(-1).reshape(tokens.shape).to(tokens.dtype)}


def measure_sizes(items: Sequence[Input], inputs: Tensors) -> dict[str, int]:
    return {
        dim: size
        for item in items
        for dim, size in zip(item.shape, inputs[item.name].shape, strict=False)
        if isinstance(dim, str)
    }


def advance_inputs(spec: ModelSpec, inputs: Tensors, outputs: Outputs) -> Tensors:
    """Return the inputs of the next step.

    An input that no output feeds keeps its values. Along an axis with another size, a mask and the
    like repeat their last values, `arange` continues, and others keep their last values.
    """
    feeds = spec.rollout.feeds if spec.rollout else {}
    items = {item.name: item for item in spec.inputs}
    following = dict(inputs)
    for position, output in enumerate(spec.outputs):
        if target := feeds.get(output.name):
            value = _require_tensor(outputs[position])
            following[target] = convert_output(value, output, items[target])
    targets = [items[name] for name in feeds.values()]
    sizes = measure_sizes(targets, following)
    sizes = spec.complete_sizes(measure_sizes(spec.inputs, inputs) | sizes)
    for item in spec.inputs:
        if spec.rollout and item.name in spec.rollout.positions:
            following[item.name] = inputs[item.name] + inputs[item.name].shape[-1]
        elif item not in targets:
            following[item.name] = _resize(inputs[item.name], item, sizes)
    return following


def convert_output(value: torch.Tensor, output: Output, item: Input) -> torch.Tensor:
    """Return the next value of an input: the output, or the token with the largest logit."""
    if not is_greedy(output, item):
        return value
    last = value[:, -1:] if value.ndim == len(item.shape) + 1 and value.ndim > 2 else value
    return last.argmax(-1).to(getattr(torch, item.dtype))


def is_greedy(output: Output, item: Input) -> bool:
    """Return True if an input receives tokens that logits select."""
    return "int" in item.dtype and "float" in output.dtype


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
