"""Components of models of transformers: the only module that calls this package."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from exporter.core.errors import suggest_nearest
from exporter.core.import_object import load_attribute
from exporter.core.text import join_names
from exporter.manifest import Component, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.inputs.call import Tensors
from exporter.worker.process.failure import Failure, format_error, wrap_errors
from exporter.worker.process.setup import apply_state, use_seed

_PACKAGE = "transformers"
#: The first release with `transformers.exporters`.
_FIRST_RELEASE = "5.13"
#: The component that is the complete model, called with the prompt.
WHOLE_MODEL = "model"
#: The shape of a declared tensor in an entry's key `dynamic_shapes` of the exporter.
_Shapes = Iterator[Sequence[int | str]]


# `transformers.exporters` runs `generate` and records the call of each component. The recorded call
# is the form of the component's call: its tensors become the inputs of the contract, and all other
# values are constants. The names are those that the exporter writes into the file.
class ComponentModule(torch.nn.Module):
    """Calls a component with the tensors of its contract, and returns tensors by name."""

    def __init__(self, part: torch.nn.Module, call: dict[str, Any], flags: dict[str, Any]) -> None:
        super().__init__()
        self.part = part
        self.train(part.training)
        self.call = call
        """The keyword arguments of `forward` as `generate` passed them."""
        self.flags = flags
        """Arguments such as `use_cache`, which the exporter stores in the configuration."""
        self.request: dict[str, Any] = {}
        """The arguments with which `generate` continues after the recorded call; empty if the
        component does not generate."""
        self.inputs = _name_tensors(call)
        with torch.no_grad():
            returned = _name_tensors(self._run(self.fill_call({})))
        # The exporter distinguishes a state before and after the call by a prefix.
        names = importlib.import_module(f"{_PACKAGE}.exporters.utils").disambiguate_io_names
        inputs, outputs = names(list(self.inputs), list(returned))
        self.inputs = dict(zip(inputs, self.inputs.values(), strict=True))
        self.outputs: dict[str, torch.Tensor] = dict(zip(outputs, returned.values(), strict=True))
        self.order: tuple[str, ...] = tuple(self.inputs)
        """The names of the positional arguments of `forward`."""

    def forward(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the tensors of the component's result, also those in a cache."""
        named = dict(zip(self.order, tensors, strict=True))
        returned = self._run(self.fill_call(named))
        return dict(zip(self.outputs, _name_tensors(returned).values(), strict=True))

    def fill_call(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return a copy of the recorded call with other tensors."""
        memo: dict[int, Any] = {id(self.inputs[name]): each for name, each in tensors.items()}
        filled: dict[str, Any] = copy.deepcopy(self.call, memo)
        for layer in getattr(filled.get("past_key_values"), "layers", ()):
            # A sliding window also counts its tokens in a number, which a file does not have.
            if getattr(layer, "cumulative_length", 0):
                layer.cumulative_length = layer.keys.shape[-2]
        return filled

    def generate_logits(self, steps: int) -> tuple[torch.Tensor, ...]:
        """Return the logits of greedy `generate` for each of the next tokens.

        Returns:
            A tensor `[batch, vocabulary]` for each step, before the rules of a generation
            configuration: no end, no forced and no suppressed tokens. () if the component does not
            generate.
        """
        if not self.request:
            return ()
        model: Any = copy.copy(self.part)
        usual = model.generation_config
        names = ("bos_token_id", "pad_token_id", "decoder_start_token_id")
        model.generation_config = type(usual)(
            **{name: getattr(usual, name, None) for name in names}
        )
        with wrap_errors(Stage.SOURCE), torch.no_grad():
            generated = model.generate(
                **copy.deepcopy(self.request),
                max_new_tokens=steps,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        return tuple(generated.logits)

    def limit_dynamic_shapes(self, shapes: _Shapes) -> Any:
        """Return the dynamic dimensions of the call for the exporter.

        Args:
            shapes: The declared shape of each tensor in the order of the call.
        """
        dynamo = importlib.import_module(f"{_PACKAGE}.exporters.exporter_dynamo")
        return _limit(dynamo.get_auto_dynamic_shapes(self.fill_call({})), shapes)

    def _run(self, call: dict[str, Any]) -> Any:
        return self.part(**call, **self.flags)


def _name_tensors(value: Any) -> dict[str, torch.Tensor]:
    """Return the tensors by their path: `past_key_values.layers.0.keys`."""
    utils = importlib.import_module(f"{_PACKAGE}.exporters.utils")
    named: dict[str, torch.Tensor] = utils.get_leaf_tensors(value)
    return named


def _limit(value: Any, shapes: _Shapes) -> Any:
    """Keep the dimensions that have a name in the contract; a tensor is a dict by dimension."""
    if isinstance(value, dict) and all(isinstance(key, int) for key in value):
        dims = enumerate(next(shapes))  # of a scalar, too, which is an empty dict
        return {index: value[index] for index, dim in dims if isinstance(dim, str)}
    if isinstance(value, dict):
        return {key: _limit(each, shapes) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_limit(each, shapes) for each in value)
    return value


def select_component(model: object, spec: ModelSpec, component: Component, root: Path) -> Any:
    """Return the component that the entry names, with the inputs and outputs of its contract.

    Raises:
        Failure: Stage `source`, if transformers has no such component, or if the component has
            other inputs or outputs than the entry.
    """
    with wrap_errors(Stage.SOURCE):
        folder = (root / spec.manifest).parent
        module = _split_model(model, spec, component, folder)
    for kind, actual, declared in (
        ("inputs", list(module.inputs), [item.name for item in spec.inputs]),
        ("outputs", list(module.outputs), [item.name for item in spec.outputs]),
    ):
        missing = [name for name in actual if name not in declared]
        unknown = [name for name in declared if name not in actual]
        if not missing and not unknown:
            continue
        hints = [f"{name}{suggest_nearest(name, missing)}" for name in unknown]
        problems = [f"without {join_names(missing)}"] if missing else []
        problems += [f"with {join_names(hints)}, which it lacks"] if unknown else []
        message = f"the component '{component.name}' has the {kind} {join_names(actual, 99)}; "
        message += f"the entry declares them {' and '.join(problems)}; correct `{kind}` by the "
        message += "tables on the page of the model"
        detail = _format_contract(module)
        raise Failure(Stage.SOURCE, message, detail=detail, status=Status.FAIL)
    for item in spec.inputs:
        tensor = module.inputs[item.name]
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        pairs = zip(item.shape, shape, strict=False)
        fits = len(shape) == len(item.shape) and all(d in (s, str(d)) for d, s in pairs)
        if not fits or dtype != item.dtype:
            dims = ", ".join(map(str, item.shape))
            message = f"the prompt gives the input '{item.name}' the values {dtype} {shape}, "
            message += f"declared {item.dtype} [{dims}]; correct the entry or the prompt"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    module.order = tuple(item.name for item in spec.inputs)
    return module


def _format_contract(module: ComponentModule) -> str:
    """Return the inputs and outputs of a component for its entry, with the recorded sizes."""
    lines = ["The component's inputs and outputs; replace sizes that vary by the names of axes:"]
    for kind, tensors in (("inputs", module.inputs), ("outputs", module.outputs)):
        lines.append(f"{kind} = [")
        for name, tensor in tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            lines.append(
                f'  {{ name = "{name}", shape = {list(tensor.shape)}, dtype = "{dtype}" }},'
            )
        lines.append("]")
    return "\n".join(lines)


def convert_component(
    model: ComponentModule, spec: ModelSpec, inputs: Tensors, opset: int
) -> ir.Model:
    """Export a component by the exporter of transformers, with all dynamic axes of the contract.

    Raises:
        Failure: At stage `convert`.
    """
    with wrap_errors(Stage.CONVERT), apply_state(spec):
        exporters = importlib.import_module(f"{_PACKAGE}.exporters")
        shapes = {item.name: item.shape for item in spec.inputs}
        is_dynamic = any(isinstance(dim, str) for shape in shapes.values() for dim in shape)
        in_order = iter([shapes[name] for name in model.inputs])
        config = exporters.OnnxConfig(
            dynamic_shapes=model.limit_dynamic_shapes(in_order) if is_dynamic else None,
            opset_version=opset,
            optimize=spec.options.get("optimize", True),
        )
        call = model.fill_call({name: each.clone() for name, each in inputs.items()})
        graph: ir.Model
        graph, _ = exporters.OnnxExporter().export_program(model.part, call | model.flags, config)
    return graph


def require_package() -> None:
    """Raise a failure of the stage `source` if the installed transformers has no exporters."""
    fix = f"install '{_PACKAGE}>={_FIRST_RELEASE}'"
    try:
        installed = version(_PACKAGE)
    except PackageNotFoundError:
        message = f"exporter = '{_PACKAGE}': the package is not installed; {fix}"
        raise Failure(Stage.SOURCE, message) from None
    try:
        importlib.import_module(f"{_PACKAGE}.exporters.exporter_onnx")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_PACKAGE):
            raise
        message = f"exporter = '{_PACKAGE}': {_PACKAGE} {installed} has no exporters; {fix}"
        raise Failure(Stage.SOURCE, message) from None


def _split_model(
    model: object, spec: ModelSpec, component: Component, folder: Path
) -> ComponentModule:
    if not isinstance(model, importlib.import_module(_PACKAGE).PreTrainedModel):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(model).__name__}, but exporter = '{_PACKAGE}' needs a "
            f"{_PACKAGE}.PreTrainedModel; use exporter = 'dynamo' without `component`",
        )
    utils = importlib.import_module(f"{_PACKAGE}.exporters.utils")
    with use_seed(spec.seed), torch.no_grad():
        prompt = _make_prompt(model, component, folder)
        parts: dict[str, Any] = {WHOLE_MODEL: (model, prompt)}
        if component.name != WHOLE_MODEL:
            try:
                parts = utils.decompose_for_generation(model, prompt) | parts
            except Exception as error:
                raise Failure(
                    Stage.SOURCE,
                    f"component '{component.name}': {_PACKAGE} cannot split {type(model).__name__} "
                    f"by `generate`: {format_error(error)}; correct the prompt, or use the "
                    f"component '{WHOLE_MODEL}'",
                ) from error
    if component.name not in parts:
        hint = suggest_nearest(component.name, parts)
        raise Failure(
            Stage.SOURCE,
            f"component '{component.name}': {type(model).__name__} has no such component{hint}; "
            f"use one of {join_names([*parts], 99)}",
        )
    part, call = parts[component.name]
    request = _continue_prompt(model, component.name, prompt, parts)
    part, call, flags = utils.prepare_for_export(part, dict(call))
    module = ComponentModule(part, call, flags)
    module.request = request
    return module


def _continue_prompt(
    model: Any, name: str, prompt: Mapping[str, Any], parts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a `generate` that begins with the recorded call of a component.

    Returns:
        The prompt, for `decode` with the token that the prefill selected. Empty if the component
        makes no tokens, such as an encoder.
    """
    if name not in ("prefill", "decode", WHOLE_MODEL) or not model.can_generate():
        return {}
    is_translation = model.config.is_encoder_decoder
    key = "decoder_input_ids" if is_translation else "input_ids"
    _, first = parts.get("prefill", (None, prompt))
    call = parts[name][1]
    ids = first.get(key, prompt.get(key))
    if ids is None:
        return {}
    if name == "decode":
        ids = torch.cat([ids, call[key]], 1)
    request = {**prompt, key: ids}
    if not is_translation:  # without a mask, `generate` would derive one from the padding token
        mask = call.get("attention_mask")
        request["attention_mask"] = torch.ones_like(ids) if mask is None else mask
    return request


def _make_prompt(model: Any, component: Component, folder: Path) -> dict[str, Any]:
    if not component.prompt:
        return dict(model.dummy_inputs)
    prompt = load_attribute(component.prompt, folder)()
    if isinstance(prompt, dict) and all(isinstance(key, str) for key in prompt):
        return prompt
    raise Failure(
        Stage.SOURCE,
        f"{component.prompt} returned a {type(prompt).__name__}, expected a dict of arguments by "
        "name, such as input_ids",
    )
