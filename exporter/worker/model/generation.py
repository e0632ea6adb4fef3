"""Models of transformers that generate: their parts, loops and interfaces."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import onnx_ir as ir
import torch

from exporter.core.errors import suggest_nearest
from exporter.core.text import join_names, shorten
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.keys import (
    COMPLETE,
    DECODER,
    DECODER_TOKENS,
    EMBEDDING,
    ENCODER,
    NAMES_OF_DECODER,
    VISION,
    Generate,
    Search,
)
from exporter.records.record import UNPROVED_SETTINGS, Stage, Status
from exporter.worker.inputs.call import Tensors
from exporter.worker.model import pictures
from exporter.worker.model.pictures import FEATURES
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.setup import apply_state, use_seed

_PACKAGE = "transformers"
#: The releases with which the tests ran; the exporters of others can have other calls.
_TESTED_RELEASES = ("5.23", "5.24")
_TESTED = f"'{_PACKAGE}=={_TESTED_RELEASES[-1]}.*'"
#: The argument and the result with the cache: its name since 5.24, and the one before.
_CACHE_NAMES = ("cache", "past_key_values")
#: A tensor of a layer of the cache, and the kinds that are inputs: others are scalars of a window.
_LAYER = re.compile(
    rf"(?:input\.|output\.)?(?:{'|'.join(_CACHE_NAMES)})"
    r"\.(\w+_attention_cache\.)?layers\.(\d+)\.(\w+?)(?:\.(\d+))?"
)
_ATTENTIONS = {"self_attention_cache.": "decoder.", "cross_attention_cache.": "encoder."}
_KINDS = {"keys": "key", "values": "value"}
#: States that each token replaces, such as those of Mamba: a file with them takes one token.
_STATES = {"conv_states": "conv_state", "recurrent_states": "recurrent_state"}
_MODULE_OF_STATES = (
    "write a module with its states as inputs and outputs, and an entry for it with `rollout`"
)
#: The shape of a declared tensor in an entry's key `dynamic_shapes` of the exporter.
_Shapes = Iterator[Sequence[int | str]]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of PyTorch, which the file repeats."""

    name: str
    inputs: Tensors
    """The inputs of the first step, by the names of the contract."""
    request: Mapping[str, Any]
    """The arguments of `generate` for the same tokens; empty for a loop of another model."""
    tokens: tuple[torch.Tensor, ...] = ()
    """The tokens of the prompt after the first one, if each step takes one token."""


@contextmanager
def wrap_calls(stage: Stage) -> Iterator[None]:
    """Convert every exception to a `Failure`, with a note if this release is not tested."""
    try:
        with wrap_errors(stage):
            yield
    except Failure as failure:
        advice = describe_release()
        if advice not in failure.message:  # an inner `wrap_calls` may have added it
            failure.message += f"; {advice}"
            failure.args = (failure.message,)
        raise


def describe_release() -> str:
    """Return the name of an installed release that is not tested with the fix; "" if it is."""
    state = "is not installed"
    with suppress(PackageNotFoundError):
        state = f"{version(_PACKAGE)} is not tested"
    is_tested = any(f" {each}." in f" {state}" for each in _TESTED_RELEASES)
    return "" if is_tested else f"{_PACKAGE} {state}: install {_TESTED}"


class GeneratorPart(torch.nn.Module):
    """Calls a decoder or an encoder with the tensors of its interface.

    `transformers.exporters` runs `generate` and records the calls of the model. The recorded call
    is the form of the part's call: its tensors become the inputs of the interface, and all other
    values are constants.
    """

    def __init__(
        self, part: torch.nn.Module, call: dict[str, Any], flags: dict[str, Any], generator: Any
    ) -> None:
        super().__init__()
        self.part = part
        self.train(part.training)
        self.call = call
        """The keyword arguments of `forward` as `generate` passed them."""
        self.flags = flags
        """Arguments such as `use_cache`, which the exporter stores in the configuration."""
        self.generator = (generator,)
        """The model that generates; in a tuple, because it is no part."""
        leaves = _name_tensors(call)
        with torch.no_grad():
            returned = _name_tensors(self._run(self.fill_call({})))
        # The exporter distinguishes a state before and after the call by a prefix.
        inputs, outputs = _utils().disambiguate_io_names([*leaves], [*returned])
        self.leaves = dict(zip(inputs, leaves.values(), strict=True))
        """Every tensor of the call in the order of the exporter, also those that are no inputs."""
        self.input_names = self._rename(self.leaves, "past_key_values")
        """The name in the interface of each tensor of the call; "" for a constant."""
        named = dict(zip(outputs, returned.values(), strict=True))
        self.output_names = self._rename(named, "present")
        pairs = zip(self.input_names.values(), self.leaves.values(), strict=True)
        self.inputs = {name: each for name, each in pairs if name}
        pairs = zip(self.output_names.values(), returned.values(), strict=True)
        self.outputs: dict[str, torch.Tensor] = {name: each for name, each in pairs if name}
        self.order: tuple[str, ...] = tuple(self.inputs)
        """The names of the positional arguments of `forward`."""
        self.dropped: tuple[str, ...] = ()
        """The settings of the model's `generate` that change its tokens and that no loop has."""

    def forward(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the tensors of the result, also those in a cache."""
        named = dict(zip(self.order, tensors, strict=True))
        returned = self._run(self.fill_call(named))
        pairs = zip(self.output_names.values(), _name_tensors(returned).values(), strict=True)
        return {name: each for name, each in pairs if name}

    def _rename(self, tensors: Tensors, prefix: str) -> dict[str, str]:
        """Return `past_key_values.0.key` for a tensor of a cache, "" for a scalar of it."""
        is_pair = isinstance(self.part, _DecoderOfPair)
        names = {name: NAMES_OF_DECODER.get(name, name) if is_pair else name for name in tensors}
        for name, layer in zip(tensors, map(_LAYER.fullmatch, tensors), strict=True):
            if layer and (kind := {**_KINDS, **_STATES}.get(layer[3])):
                number = f"_{layer[4]}" if int(layer[4] or 0) else ""  # of several in a layer
                attention = _ATTENTIONS.get(layer[1], "")
                names[name] = f"{prefix}.{layer[2]}.{attention}{kind}{number}"
            elif layer and not tensors[name].ndim:
                names[name] = ""
        return names

    def fill_call(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return a copy of the recorded call with other tensors."""
        copies = {name: each.clone() for name, each in tensors.items()}  # a call may change states
        memo: dict[int, Any] = {id(self.inputs[name]): each for name, each in copies.items()}
        filled: dict[str, Any] = copy.deepcopy(self.call, memo)
        return filled

    def list_loops(self, spec: ModelSpec) -> Iterator[Loop]:
        """Yield a loop for each prompt, with an empty cache."""
        with use_seed(spec.seed), torch.no_grad():
            is_single = _has_states(self.call)
            for prompt in _draw_prompts(*self.generator, is_single=is_single):
                rows, length = (*prompt.values(),)[0].shape[:2]
                parts = _decompose(*self.generator, prompt)
                (_, first), (_, second) = parts["prefill"], parts["decode"]
                # Without padding, the mask is in no call; and `generate` encodes pictures itself.
                known = ["attention_mask", pictures.KINDS, *pictures.PICTURES]
                if isinstance(self.part, _EncoderAndDecoder):
                    known.append(self.part.model.main_input_name)
                masks = {name: prompt[name] for name in known if name in prompt}
                if any(item.name == FEATURES for item in spec.inputs):
                    features = pictures.compute_features(*self.generator, prompt)
                    masks[FEATURES] = features
                cache = _find_cache(second)
                call = {**second, **first, **masks, cache: second[cache]}
                tensors = _name_tensors(call)
                renamed = self._rename(tensors, "past_key_values")
                given = {renamed[name]: each for name, each in tensors.items()}
                inputs = {item.name: given[item.name] for item in spec.inputs}
                caches = [item.name for item in spec.inputs if "past" in item.shape]
                inputs |= {name: inputs[name][:, :, :0] for name in caches}
                following: tuple[torch.Tensor, ...] = ()
                if is_single:
                    others = [name for name in inputs if name not in caches and "." in name]
                    inputs |= {name: torch.zeros_like(inputs[name]) for name in others}
                    following = tuple(prompt["input_ids"][:, 1:, None].unbind(1))
                    tokens = [name for name in inputs if "." not in name]
                    inputs |= {name: inputs[name][:, :1] for name in tokens}
                request = _trim_request(*self.generator, prompt)
                yield Loop(f"prompt {rows} x {length}, ", inputs, request, following)

    def generate_tokens(
        self, request: Mapping[str, Any], steps: int
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Return the logits `[batch, vocabulary]` and tokens `[batch, 1]` of greedy `generate`.

        The first token of a picture is the last one: `generate` gives it no features, and a file
        has pictures in each step.
        """
        (model,) = self.generator
        with wrap_calls(Stage.SOURCE), torch.no_grad():
            generated = model.generate(
                **copy.deepcopy(dict(request)),
                max_new_tokens=steps,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = generated.sequences[:, -len(generated.logits) :]
        count = pictures.count_words(model, tokens)
        return tuple(generated.logits)[:count], tokens.split(1, dim=1)[:count]

    def double(self) -> GeneratorPart:
        """Return this part in float64, which torch's grouped products of experts do not have."""
        read_experts: Any = getattr(self.part, "get_experts_implementation", dict)
        if "grouped_mm" in read_experts().values():
            select: Any = self.part.set_experts_implementation
            select("batched_mm")
        return super().double()

    def _run(self, call: dict[str, Any]) -> Any:
        with _utils().apply_patches("dynamo"):  # a sliding window keeps all tokens, as in the file
            return self.part(**call, **self.flags)


def _utils() -> Any:
    return importlib.import_module(f"{_PACKAGE}.exporters.utils")


def _name_tensors(value: Any) -> dict[str, torch.Tensor]:
    """Return the tensors by their path: `cache.layers.0.keys`."""
    named: dict[str, torch.Tensor] = _utils().get_leaf_tensors(value)
    return named


def _has_states(call: Mapping[str, Any]) -> bool:
    """Return whether the cache of a call has other tensors than keys and values."""
    named = _name_tensors(call).items()
    others = ((_LAYER.fullmatch(name), name, each.ndim) for name, each in named)
    return any(
        ndim and name.split(".")[0] in _CACHE_NAMES and (layer is None or layer[3] not in _KINDS)
        for layer, name, ndim in others
    )


def _find_cache(values: Mapping[str, Any]) -> str:
    """Return the name of the cache among the arguments of a call, or among its results."""
    # The results of 5.24 have the earlier name, too, with a warning, so the later one is the first.
    for name in _CACHE_NAMES:
        if name in values:
            return name
    message = f"`generate`: none of {join_names([*values])} is a cache: {join_names(_CACHE_NAMES)}"
    raise Failure(Stage.SOURCE, message, status=Status.FAIL)


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


@wrap_calls(Stage.SOURCE)
def select_part(model: object, spec: ModelSpec, generate: Generate) -> GeneratorPart:
    """Return the part that the entry names, with the inputs and outputs of its interface.

    Raises:
        Failure: Stage `source`, if the model does not generate, or if the part has other inputs or
            outputs than the interface.
    """
    with use_seed(spec.seed), torch.no_grad():
        if problems := list(_find_token_problems(_require_generator(model), generate)):
            message = f"`generate` of the model has {join_names(problems)}; correct the entry, or "
            message += "the `generation_config` of the model"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)
        dropped = tuple(_list_dropped_settings(model, generate.search))
        model = _simplify_generation(model, generate.search)
        has_encoder = all(item.name != FEATURES for item in spec.inputs)
        prompt = _draw_prompt(model, 2, 5, 5)
        module = _build_part(model, generate.part, prompt, has_encoder=has_encoder)
    fix = f"correct the interface; `exporter add {spec.source} --dry-run` prints it"
    for kind, actual, declared in (
        ("inputs", list(module.inputs), [item.name for item in spec.inputs]),
        ("outputs", list(module.outputs), [item.name for item in spec.outputs]),
    ):
        missing = [name for name in actual if name not in declared]
        problems = [f"without {name}" for name in missing]
        unknown = [name for name in declared if name not in actual]
        problems += [f"with {name}{suggest_nearest(name, missing)}" for name in unknown]
        if problems:
            message = f"the {generate.part} has the {kind} {join_names(actual, 99)}; the entry "
            message += f"declares them {join_names(problems)}; {fix}"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    for item in spec.inputs:
        tensor = module.inputs[item.name]
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        pairs = zip(item.shape, shape, strict=False)
        fits = len(shape) == len(item.shape) and all(d in (s, str(d)) for d, s in pairs)
        if not fits or dtype != item.dtype:
            dims = ", ".join(map(str, item.shape))
            message = f"`generate` gives the input '{item.name}' the values {dtype} {shape}, "
            message += f"declared {item.dtype} [{dims}]; {fix}"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    module.order = tuple(item.name for item in spec.inputs)
    module.dropped = dropped if spec.rollout and generate.part in (DECODER, COMPLETE) else ()
    return module


def _read_special_tokens(model: Any) -> dict[str, Any]:
    """Return the tokens of `generate` that begin, end and pad a text, by the keys of an entry."""
    usual, is_pair = model.generation_config, model.config.is_encoder_decoder
    names = {"begin": "decoder_start" if is_pair else "bos", "end": "eos", "padding": "pad"}
    tokens = {key: getattr(usual, f"{name}_token_id", None) for key, name in names.items()}
    return tokens | ({"end": [tokens["end"]]} if isinstance(tokens["end"], int) else {})


def _find_token_problems(model: Any, generate: Generate) -> Iterator[str]:
    """Yield each special token of the entry that differs; it may name further ends of a text.

    A token that the entry leaves out is no promise, but each text of a decoder with an encoder
    begins with `begin`.
    """
    default, is_pair = Generate(), model.config.is_encoder_decoder
    if generate.part in (DECODER, COMPLETE):
        for name, usual in _read_special_tokens(model).items():
            chosen = getattr(generate, name)
            is_left_out = chosen == getattr(default, name) and not (is_pair and name == "begin")
            fits = set(usual or ()) <= set(chosen) if name == "end" else usual in (None, chosen)
            if not (is_left_out or fits):
                yield f"{name} = {usual}, the entry has {list(chosen) if name == 'end' else chosen}"
        for name in _list_changed(generate.search):
            usual, chosen = _read_setting(model, name), getattr(generate.search, name)
            if chosen != usual:
                shown = [shorten(str(each), _LENGTH_OF_SETTING) for each in (usual, chosen)]
                yield f"search.{name} = {shown[0]}, the entry has {shown[1]}"


def convert_part(model: Any, spec: ModelSpec, inputs: Tensors, opset: int) -> ir.Model:
    """Export a part by the exporter of transformers, with all dynamic axes of the interface.

    `model`: The part that `select_part` returned.

    Raises:
        Failure: At stage `convert`.
    """
    with wrap_calls(Stage.CONVERT), apply_state(spec):
        exporters = importlib.import_module(f"{_PACKAGE}.exporters")
        dynamo = importlib.import_module(f"{_PACKAGE}.exporters.exporter_dynamo")
        shapes = {item.name: item.shape for item in spec.inputs}
        in_order = iter([shapes.get(name, ()) for name in model.input_names.values()])
        config = exporters.OnnxConfig(
            dynamic_shapes=_limit(dynamo.get_auto_dynamic_shapes(model.fill_call({})), in_order),
            opset_version=opset,
            optimize=spec.options.get("optimize", True),
        )
        call = model.fill_call(inputs)
        graph: ir.Model
        graph, _ = exporters.OnnxExporter().export_program(model.part, call | model.flags, config)
        _rename_values(graph.graph, model)
    return graph


def _rename_values(graph: ir.Graph, part: GeneratorPart) -> None:
    """Give inputs and outputs the names of the interface; others become constants, or end."""
    for value in tuple(graph.outputs):
        if name := part.output_names[str(value.name)]:
            value.name = name
        else:
            graph.outputs.remove(value)
    for value in tuple(graph.inputs):
        original = str(value.name)
        if name := part.input_names[original]:
            value.name = name
        else:
            graph.inputs.remove(value)
            value.const_value = ir.tensor(part.leaves[original].numpy(), name=original)
            graph.register_initializer(value)


def require_package() -> None:
    """Raise a failure of the stage `source` if the installed transformers has no exporters."""
    with wrap_calls(Stage.SOURCE):
        importlib.import_module(f"{_PACKAGE}.exporters.exporter_onnx")


class _PartOfPair(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)


class _DecoderOfPair(_PartOfPair):
    """Calls an encoder-decoder with the cache of its encoder, whose states are not used again."""

    def forward(self, **call: Any) -> dict[str, Any]:
        name = _find_cache(call)
        keys = call[name].cross_attention_cache.layers[0].keys
        states = keys.new_zeros(keys.shape[0], keys.shape[2], self.model.config.hidden_size)
        outputs = importlib.import_module(f"{_PACKAGE}.modeling_outputs")
        encoded = outputs.BaseModelOutput(last_hidden_state=states)
        returned = self.model(**call, encoder_outputs=encoded, use_cache=True)
        cache = returned[name].self_attention_cache
        return {"logits": returned.logits, name: {"self_attention_cache": cache}}


class _DecoderOfVectors(_PartOfPair):
    """Calls a language model with the vectors of tokens and pictures."""

    def forward(self, **call: Any) -> dict[str, Any]:
        if pictures.KINDS in call:
            # The model applies the kinds to a whole prompt only, and the mask to each call.
            name = next((each for each in _CACHE_NAMES if each in call), _CACHE_NAMES[0])
            kinds = {pictures.KINDS: call.pop(pictures.KINDS), name: call.get(name)}
            names = ("inputs_embeds", "attention_mask", "position_ids")
            given = {each: call.get(each) for each in names}
            mask = self.model.create_masks_for_generate(self.model.config, **given, **kinds)
            call["attention_mask"] = mask
        returned = self.model(**call, use_cache=True)
        name = _find_cache(returned)
        return {"logits": returned["logits"], name: returned[name]}


class _ModelWithPictures(_PartOfPair):
    """Calls encoder, embedding and decoder one after the other, as a chain does.

    A chain without an encoder gets the features.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.vision, self.embedding = pictures.Vision(model), pictures.Embedding(model)
        self.decoder = _DecoderOfVectors(model)

    def forward(self, **call: Any) -> dict[str, Any]:
        given = {name: call.pop(name) for name in pictures.PICTURES if name in call}
        features = self.vision(**given) if given else {FEATURES: call.pop(FEATURES)}
        vectors = self.embedding(call.pop("input_ids"), **features)
        returned: dict[str, Any] = self.decoder(**vectors, **call)
        return returned


class _EncoderAndDecoder(_PartOfPair):
    """Calls encoder and decoder one after the other, as a chain does."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.encoder, self.decoder = _EncoderOfPair(model), _DecoderOfPair(model)

    def forward(self, **call: Any) -> dict[str, Any]:
        name, main = _find_cache(call), self.model.main_input_name
        given = {each: call[each] for each in (main, "attention_mask") if each in call}
        cross = self.encoder(**given)[name]["cross_attention_cache"]
        caches = importlib.import_module(f"{_PACKAGE}.cache_utils")
        decoder_cache = call.pop(name)["self_attention_cache"]
        rest = {each: call[each] for each in call if each != main}
        cache = {name: caches.EncoderDecoderCache(decoder_cache, cross)}
        returned: dict[str, Any] = self.decoder(**rest, **cache)
        return returned


class _EncoderOfPair(_PartOfPair):
    """Returns the keys and values of an encoder's states for each layer of the decoder."""

    def forward(self, **call: Any) -> dict[str, Any]:
        rows = call[self.model.main_input_name].shape[0]
        token = torch.zeros(
            rows, 1, dtype=torch.int64
        )  # any token: the keys of the encoder do not depend on it
        returned = self.model(**call, decoder_input_ids=token, use_cache=True)
        name = _find_cache(returned)
        return {name: {"cross_attention_cache": returned[name].cross_attention_cache}}


def _build_part(
    model: Any,
    name: str,
    prompt: dict[str, torch.Tensor],
    *,
    is_long: bool = True,
    has_encoder: bool = True,
) -> GeneratorPart:
    """Return a part of a model that generates, with the call for a prompt.

    With `is_long`, the call of a decoder has two tokens, so that their number can vary. A decoder
    with states has one token, and no padding: PyTorch applies a mask to a whole prompt only.

    `has_encoder`: Whether a chain gets pictures, in place of their features.

    Raises:
        Failure: Stage `source`, if the encoder gives other keys or values than `generate` has.
    """
    is_pair = model.config.is_encoder_decoder
    parts = _decompose(model, prompt, multi_token_decode=is_long and not is_pair)
    if not is_pair and _has_states(parts["decode"][1]):
        mask = torch.ones_like(prompt["attention_mask"])
        parts = _decompose(model, prompt | {"attention_mask": mask})
    module, call = parts["decode"][0], dict(parts["decode"][1])
    if pictures.reads_pictures(model):
        module, call = _build_picture_part(model, name, prompt, parts, has_encoder=has_encoder)
    if is_pair:
        module, cache = _DecoderOfPair(model), _find_cache(call)
        for each in ("use_cache", "return_dict", "encoder_outputs"):
            call.pop(each)
        if is_long:
            call[DECODER_TOKENS] = call[DECODER_TOKENS].repeat(1, 2)
        given = {each: prompt[each] for each in prompt if each != DECODER_TOKENS}
        if name == COMPLETE:
            module = _EncoderAndDecoder(model)
            states = {cache: {"self_attention_cache": call[cache].self_attention_cache}}
            call = {**given, **call, **states}
        if name == ENCODER:
            module = _EncoderOfPair(model)
            expected = {cache: {"cross_attention_cache": call[cache].cross_attention_cache}}
            call = given
            actual = _name_tensors(module(**call))
            for each, tensor in _name_tensors(expected).items():
                if not torch.allclose(actual[each], tensor, rtol=1e-4, atol=1e-4):
                    message = f"`generate` has another {each} than the encoder of its inputs"
                    raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    module, call, flags = _utils().prepare_for_export(module, call)
    part = GeneratorPart(module, call, flags, model)
    if "position_ids" in part.inputs and _ignores_positions(part):
        del call["position_ids"]
        part = GeneratorPart(module, call, flags, model)
    return part


def _ignores_positions(part: GeneratorPart) -> bool:
    """Return whether other positions give the same outputs, as in Jamba."""
    others = {"position_ids": torch.zeros_like(part.inputs["position_ids"])}
    returned = part(*(part.inputs | others).values())
    return all(torch.equal(returned[name], each) for name, each in part.outputs.items())


def _list_parts(model: Any) -> tuple[str, ...]:
    if pictures.reads_pictures(model):
        return (VISION, EMBEDDING, DECODER, COMPLETE)
    return (ENCODER, DECODER, COMPLETE) if model.config.is_encoder_decoder else (DECODER,)


def _build_picture_part(
    model: Any,
    name: str,
    prompt: dict[str, torch.Tensor],
    calls: Mapping[str, Any],
    *,
    has_encoder: bool,
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return a part of a model with pictures, and its call.

    `calls`: Those of the model for the prompt and for tokens after it.

    Raises:
        Failure: Stage `source`, if the encoder gives other features than `generate` has, or if the
            parts give other logits than the model.
    """
    decode, positions = calls["decode"][1], calls["prefill"][1]["position_ids"]
    if _has_states(decode):
        text = f"`generate`: {type(model).__name__} reads pictures and has other states than keys "
        raise Failure(Stage.SOURCE, f"{text}and values; {_MODULE_OF_STATES}", status=Status.FAIL)
    given = {each: prompt[each] for each in pictures.PICTURES if each in prompt}
    features = {FEATURES: pictures.compute_features(model, prompt)}
    vision, embedding = pictures.Vision(model), pictures.Embedding(model)
    tokens = {"input_ids": decode["input_ids"]}
    states = ("attention_mask", "position_ids", _find_cache(decode))
    rest = {each: decode[each] for each in states if each in decode}
    if pictures.KINDS in prompt:
        kinds = prompt[pictures.KINDS]
        count = decode["attention_mask"].shape[1] - kinds.shape[1]
        rest[pictures.KINDS] = torch.cat([kinds, kinds[:, -1:].repeat(1, count)], 1)
    if name == VISION:
        if not pictures.has_features(model, vision, prompt):
            message = f"{pictures.OTHER_FEATURES}; write a module for the encoder, and an entry "
            message += "for it"
            raise Failure(Stage.SOURCE, message, status=Status.FAIL)
        return vision, given
    if name == COMPLETE:
        complete = _ModelWithPictures(model)
        given = given if has_encoder else features
        names = ("input_ids", "attention_mask", pictures.KINDS)
        call = {each: prompt[each] for each in names if each in prompt}
        actual = complete(**call, **given, position_ids=positions)["logits"][:, -1]
        _require_logits(model, actual, prompt, positions)
        return complete, {**given, **tokens, **rest}
    vectors = embedding(**tokens, **features)
    if name == EMBEDDING:
        return embedding, {**tokens, **features}
    return _DecoderOfVectors(model), {**vectors, **rest}


def _require_logits(
    model: Any, actual: torch.Tensor, prompt: dict[str, Any], positions: torch.Tensor
) -> None:
    """Fail if the parts have other logits for a prompt with pictures than the model."""
    expected = model(**prompt, position_ids=positions)["logits"][:, -1]
    if not torch.allclose(actual, expected, 1e-4, 1e-4 * float(expected.abs().max())):
        text = f"`generate`: the language model of {type(model).__name__} gets more than the "
        text += "vectors of tokens and pictures, such as features of several layers or the places "
        text += "of pictures; write a module and an entry for encoder, embedding and language model"
        raise Failure(Stage.SOURCE, text, status=Status.FAIL)


def _complete_parts(model: Any, parts: Mapping[str, dict[str, Any]]) -> None:
    """Add the axes of pictures, and the values of the integers that belong to them."""
    axes = pictures.describe_axes(model)
    for tables in parts.values():
        items = [*tables["inputs"], *tables["outputs"]]
        for item in items:
            axis = pictures.name_axis(model, item["name"])
            item["shape"] = [axis if dim == "source" else dim for dim in item["shape"]]
        dims = {dim for item in items for dim in item["shape"]}
        tables["axes"] = {name: axis for name, axis in axes.items() if name in dims}
        # Only a link computes the number of features.
        if not dims & {"patches", "pictures"}:
            tables["axes"].pop("features", None)
        for item in tables["inputs"]:
            if values := pictures.choose_integers(model, item["name"]):
                item["values"] = values


@contextmanager
def _name_line(model: Any) -> Iterator[None]:
    """Name the line of a model with pictures that refuses the calls of its parts."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        if not pictures.reads_pictures(model):
            raise
        text = f"`generate`: a part of {type(model).__name__} was not computed: "
        text += f"{pictures.describe_error(error)}; write a module and an entry for encoder, "
        text += "embedding and language model"
        raise Failure(Stage.SOURCE, text, status=Status.FAIL) from error


def _decompose(model: Any, prompt: dict[str, Any], **options: bool) -> dict[str, Any]:
    prompt = _trim_request(model, prompt)
    utils, has_pictures = _utils(), pictures.reads_pictures(model)
    # The other function splits the first call into the calls of the model's layers.
    decompose = utils.decompose_prefill_decode if has_pictures else utils.decompose_for_generation
    forwards = pictures.list_forwards(model) if has_pictures else {}
    with utils.apply_patches("dynamo"), pictures.restore_forwards(forwards):
        parts: dict[str, Any] = decompose(model, prompt, **options)
    return parts


def _trim_request(model: Any, prompt: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `generate` for a prompt: without pictures if no token has one."""
    is_picture = getattr(model.config, "image_token_id", None)
    if "pixel_values" not in prompt or (prompt["input_ids"] == is_picture).any():
        return prompt
    return {name: each for name, each in prompt.items() if name not in pictures.PICTURES}


@wrap_calls(Stage.SOURCE)
def measure_interface(model: Any, spec: ModelSpec) -> dict[str, Any]:
    """Return the inputs and outputs of each part; one run for each axis shows its dimensions.

    Raises:
        Failure: Stage `source`, if `generate` does not support the model with a cache.
    """
    with use_seed(spec.seed), torch.no_grad():
        tokens = _read_special_tokens(_require_generator(model))
        search = Search(**{name: _read_setting(model, name) for name in Search.model_fields})
        tokens["search"] = {name: getattr(search, name) for name in _list_changed(search)}
        model = _simplify_generation(model)
        require_package()
        parts, no_encoder = {}, ""
        if pictures.reads_pictures(model):
            no_encoder = pictures.find_encoder_problem(model)
        for name in _list_parts(model):
            if name == VISION and no_encoder:
                continue
            sizes = (2, 5, 5), (3, 5, 5), (2, 7, 5), (2, 5, 5), (2, 5, 7)
            modules = list[GeneratorPart]()
            for index, drawn in enumerate(sizes):
                prompt, has_encoder = _draw_prompt(model, *drawn), not no_encoder
                with _name_line(model):
                    modules.append(
                        _build_part(
                            model, name, prompt, is_long=index != 3, has_encoder=has_encoder
                        )
                    )
            parts[name] = {
                key: [_describe(n, [getattr(m, key)[n] for m in modules]) for n in names]
                for key, names in (("inputs", modules[0].inputs), ("outputs", modules[0].outputs))
            }
            first = modules[0]
            again = {} if model.training else first(*first.inputs.values())
            if any(not torch.equal(each, first.outputs[key]) for key, each in again.items()):
                text = f"`generate`: {type(model).__name__} keeps states outside of its cache: two "
                text += f"equal calls have other outputs; {_MODULE_OF_STATES}"
                raise Failure(Stage.SOURCE, text, status=Status.FAIL)
            if _has_states(first.call):
                for each in parts[name]["outputs"]:
                    each["shape"] = ["total" if d == "past" else d for d in each["shape"]]
        if pictures.reads_pictures(model):
            _complete_parts(model, parts)
    config = model.config.get_text_config()
    states = [each["name"] for each in parts[DECODER]["inputs"] if "." in each["name"]]
    others = [name for name in states if not name.startswith("past_key_values.")]
    if others or not states:
        text = f"`generate`: {type(model).__name__} has {join_names(others) or 'no states'}; known "
        text += f"are the {join_names([*_KINDS, *_STATES], 9)} of a cache; {_MODULE_OF_STATES}"
        raise Failure(Stage.SOURCE, text, status=Status.FAIL)
    usual = getattr(config, "max_position_embeddings", None)
    return {
        "parts": parts,
        "vocabulary": config.vocab_size,
        "tokens": tokens,
        "limit": getattr(config, "max_target_positions", None) or usual,
        "no_encoder": no_encoder,
    }


def _describe(name: str, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return a tensor of a part by its sizes in each run."""
    sizes = zip(*(tensor.shape for tensor in tensors), strict=True)
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    return {"name": name, "shape": [_name_dim(*each) for each in sizes], "dtype": dtype}


def _name_dim(base: int, more_rows: int, longer: int, single: int, wider: int) -> str | int:
    """Return the axis of a dimension by its sizes in each run of `measure_interface`."""
    if more_rows != base:
        return "batch"
    if wider != base:
        return "source"
    if longer != base:
        return "past" if single == base else "total"
    return base if single == base else "length"


#: Settings that change the tokens of `generate`, with the values that change nothing. None does
#: not, either; `Search` has those that a loop over the file has, too.
_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "token_healing": (False,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0,),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty"), (1.0,)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), (0,)),
    **dict.fromkeys(("min_length", "min_new_tokens"), (0,)),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "bad_words_ids"), ([],)),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids"), ()),
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty"), ()),
    **dict.fromkeys(("watermarking_config", "dola_layers", "stop_strings"), ()),
}
_NEUTRAL = Search()
_LENGTH_OF_SETTING = 40


def list_unproved_settings(model: torch.nn.Module) -> Iterator[str]:
    """Yield a text about the settings of `generate` that a loop over the file does not have."""
    if isinstance(model, GeneratorPart) and model.dropped:
        names = join_names(model.dropped, len(model.dropped))
        known = [name for name in Search.model_fields if f" {name} = " in f" {names}"]
        fix = f"; declare {join_names(known)} in `generate.search` of the entry" if known else ""
        text = f"{names}: the proved loop takes the largest logit of each step{fix}"
        yield f"{UNPROVED_SETTINGS}{text}"


def _list_dropped_settings(model: Any, search: Search) -> Iterator[str]:
    """Yield each setting of the model's `generate` that `_simplify_generation` removes."""
    for name, neutral in _SETTINGS.items():
        value = getattr(model.generation_config, name, None)
        if value is not None and value not in neutral and name not in _list_changed(search):
            yield f"{name} = {shorten(str(value), _LENGTH_OF_SETTING)}"


def _read_setting(model: Any, name: str) -> Any:
    """Return a setting of the model's `generate`, as an entry has it."""
    value = getattr(model.generation_config, name, None)
    if value is None:
        return getattr(_NEUTRAL, name)
    return tuple(value) if isinstance(value, list | tuple) else value


def _list_changed(search: Search) -> list[str]:
    """Return the names of the settings that change tokens."""
    return [name for name, value in search if value != getattr(_NEUTRAL, name)]


def _simplify_generation(model: Any, search: Search = _NEUTRAL) -> Any:
    """Return the model with a greedy `generate`: no end, and no settings but those of an entry."""
    model = copy.copy(model)
    usual = model.generation_config
    names = ("bos_token_id", "pad_token_id", "decoder_start_token_id")
    settings = {name: getattr(usual, name, None) for name in names}
    settings |= {name: getattr(usual, name) for name in _list_changed(search)}
    model.generation_config = type(usual)(**settings)
    return model


def _require_generator(model: Any) -> Any:
    """Return a model that generates from tokens or from the features of sounds, or fail."""
    name, problem = type(model).__name__, ""
    if not (hasattr(model, "can_generate") and model.can_generate()):
        problem = "does not generate; declare its inputs, such as by --input x=2x3"
    elif _utils().is_multimodal(model) and not pictures.reads_pictures(model):
        problem = "has sounds, or pictures without a token in the prompt, and is not divided into "
        problem += "encoder, embedding and language model; write a module and an entry for each"
    elif pictures.reads_pictures(model) and (reason := pictures.find_problem(model)):
        problem = f"has pictures, and the features of two of them were not computed: {reason}; "
        problem += "write a module and an entry for encoder, embedding and language model"
    elif model.main_input_name != "input_ids" and not hasattr(model.config, "num_mel_bins"):
        problem = f"generates from {model.main_input_name}; write an entry for each of its modules"
    if problem:
        raise Failure(Stage.SOURCE, f"`generate`: {name} {problem}", status=Status.FAIL)
    return model


def _draw_prompts(model: Any, *, is_single: bool) -> Iterator[dict[str, torch.Tensor]]:
    """Yield prompts of random tokens, without those for padding and the end.

    Two rows of which one has padding, one token, three rows, and a row that is longer than a
    sliding window. Three rows for an encoder-decoder also have first tokens for the decoder.

    `is_single`: Whether each step takes one token; then no row has padding.
    """
    if pictures.reads_pictures(model):
        yield from pictures.draw_prompts(model, _list_words(model))
        return
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    for rows, length in ((2, 5), (1, 1), (3, 9), *(((1, window + 3),) if window else ())):
        padding = 2 if rows == 2 and not is_single else 0
        prompt = _draw_prompt(model, rows, length, length, padding)
        yield prompt if rows == 3 else {n: prompt[n] for n in prompt if n != DECODER_TOKENS}


def _draw_prompt(
    model: Any, rows: int, length: int, source_length: int, padding: int = 2
) -> dict[str, torch.Tensor]:
    """Return random arguments of `generate`.

    `source_length`: The number of tokens for an encoder.

    Padding in the first row is on the left, and for an encoder on the right.
    """
    config, tokens = model.config.get_text_config(), _list_words(model)
    if pictures.reads_pictures(model):
        return pictures.draw_measured_prompt(model, tokens, rows, length, source_length // 2)
    ids = tokens[torch.randint(len(tokens), (rows, length))]
    if model.main_input_name != "input_ids":
        features = torch.randn(rows, config.num_mel_bins, 2 * config.max_source_positions)
        return {model.main_input_name: features, "decoder_input_ids": ids}
    is_pair = model.config.is_encoder_decoder
    mask = torch.ones(rows, source_length if is_pair else length, dtype=torch.int64)
    mask[0, source_length - padding if is_pair else 0 :][:padding] = 0
    if not is_pair:
        return {"input_ids": ids, "attention_mask": mask}
    words = tokens[torch.randint(len(tokens), (rows, source_length))]
    return {"input_ids": words, "attention_mask": mask, "decoder_input_ids": ids}


def _list_words(model: Any) -> torch.Tensor:
    """Return the tokens of a vocabulary that have no meaning of their own."""
    config = model.config.get_text_config()
    values = [getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos")]
    names = ("image", "video", "vision_start", "vision_end", "audio")
    values += [getattr(model.config, f"{name}_token_id", None) for name in names]
    special = {each for value in values for each in (value if isinstance(value, list) else [value])}
    return torch.tensor([each for each in range(config.vocab_size) if each not in special])
