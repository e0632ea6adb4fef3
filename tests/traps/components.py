"""Traps: components of models of transformers, exported by its own exporter.

Output: `COMPONENTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx

from exporter.manifest import Axis, Comparator, Component, FilePass, Input, Output, Rollout
from exporter.manifest.resolved.call import SizeRule
from exporter.manifest.resolved.keys import Generate
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    Tamper,
    Trap,
    Verdict,
    contract,
    declare_input,
    declare_output,
    failed,
    make_fill,
    parity,
    refused,
    structure,
)

_WORDS = make_fill("randint", high=64)
_EARLY = make_fill("randint", high=20)
_LAYERS = (0, 1)
_KINDS = ("keys", "values")
_Signature: TypeAlias = "tuple[tuple[Input, ...], tuple[Output, ...]]"


def _component(
    name: str,
    story: str,
    source: str,
    component: Component,
    signature: _Signature,
    verdict: Verdict = SOUND,
    *,
    tamper: Tamper | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
    **fields: object,
) -> Trap:
    inputs, outputs = signature
    numbered = enumerate(inputs)
    dims = {dim for item in (*inputs, *outputs) for dim in item.shape}
    spec = contract(
        f"components.py:{source}",
        DYNAMO,
        exporter="transformers",
        component=component,
        inputs=tuple(item.model_copy(update={"at": f"args[{n}]"}) for n, item in numbered),
        outputs=outputs,
        axes=tuple(
            axis.model_copy(update={"max": limits.get(axis.name, axis.max)})
            for axis in _AXES
            if axis.name in dims
        ),
        **{"timeout": 300.0, **fields},
    )
    return Trap(
        name=name, story=story, spec=spec, verdict=verdict, tamper=tamper, package="transformers"
    )


_AXES = (
    Axis(name="batch", example=3),
    Axis(name="length", example=5, max=32),
    Axis(name="past", example=7, max=32),
    Axis(name="total", example=8, rule=SizeRule(kind="sum", operands=("past", 1))),
    Axis(name="source", example=4),
)


def _tokens(name: str, *shape: str | int, fill: object = _WORDS) -> Input:
    return declare_input(name, *shape, dtype="int64", fill=fill)


def _cache(prefix: str, size: int, axis: str, attention: str = "") -> list[tuple[str, ...]]:
    """Return the names and dimensions of a cache of two layers."""
    return [
        (f"{prefix}past_key_values.{attention}layers.{n}.{kind}", "batch", 2, axis, size)
        for n in _LAYERS
        for kind in _KINDS
    ]


def _prefill(size: int, *masks: Input) -> _Signature:
    inputs = (
        _tokens("input_ids", "batch", "length"),
        *masks,
        _tokens("position_ids", "batch", "length"),
    )
    caches = (declare_output(*each) for each in _cache("", size, "length"))
    return inputs, (declare_output("logits", "batch", "length", 64), *caches)


def decode(size: int, *masks: Input) -> _Signature:
    inputs = (
        _tokens("input_ids", "batch", 1),
        *masks,
        *(declare_input(*each) for each in _cache("input.", size, "past")),
        _tokens("position_ids", "batch", 1),
    )
    caches = (declare_output(*each) for each in _cache("output.", size, "total"))
    return inputs, (declare_output("logits", "batch", 1, 64), *caches)


def _translate(length: str | int, past: str, prefix: str) -> tuple[Output, ...]:
    return (
        declare_output("logits", "batch", length, 64),
        *(declare_output(*each) for each in _cache(prefix, 8, past, "self_attention_cache.")),
        *(declare_output(*each) for each in _cache(prefix, 8, "source", "cross_attention_cache.")),
        declare_output("encoder_last_hidden_state", "batch", "source", 16),
    )


def _feeds(token: str, attention: str = "") -> dict[str, str]:
    names = [each[0] for each in _cache("", 0, "", attention)]
    return {"logits": token, **{f"output.{name}": f"input.{name}" for name in names}}


def _decoder(
    name: str,
    story: str,
    source: str,
    size: int,
    verdict: Verdict = SOUND,
    *,
    steps: int = 32,
    **fields: object,
) -> Trap:
    """Return the trap of an entry with `generate`, whose prompts begin with an empty cache."""
    caches = [(f"{n}.{kind}", "batch", 2) for n in _LAYERS for kind in ("key", "value")]
    signature = (
        (
            _tokens("input_ids", "batch", "length"),
            _tokens("attention_mask", "batch", "total", fill=make_fill("mask", side="left")),
            _tokens("position_ids", "batch", "length", fill=_EARLY),
            *(declare_input(f"past_key_values.{n}", *dims, "past", size) for n, *dims in caches),
        ),
        (
            declare_output("logits", "batch", "length", 64),
            *(declare_output(f"present.{n}", *dims, "total", size) for n, *dims in caches),
        ),
    )
    feeds = {f"present.{n}": f"past_key_values.{n}" for n, *_ in caches}
    loop = Rollout(steps=steps, feeds={"logits": "input_ids", **feeds})
    trap = _component(
        name, story, source, Component(name="decoder"), signature, verdict,
        rollout=loop, generate=Generate(steps=steps), **fields,
    )  # fmt: skip
    return replace(trap, spec=trap.spec.model_copy(update={"axes": _grow(trap.spec.axes)}))


def _vary(trap: Trap, name: str, tokens: float, **compare: float) -> Trap:
    """Return the trap of a variant by a pass, which promises a share of equal tokens."""
    compared = {"compare": Comparator.model_validate(compare)}
    outputs = tuple(each.model_copy(update=compared) for each in trap.spec.outputs)
    passes = (FilePass(call=f"tests/traps/models/passes.py:{name}"),)
    fields = {"passes": passes, "tokens": tokens, "outputs": outputs}
    return replace(trap, spec=trap.spec.model_copy(update=fields))


def _pair(
    name: str, story: str, verdict: Verdict = SOUND, *, part: str = "decoder", kind: str = ""
) -> Trap:
    """Return the trap of an entry with a part of BART; `kind` is that of `ChangedBart`."""
    caches = [(f"{n}.{at}", "batch", 2) for n in _LAYERS for at in ("key", "value")]
    split = [(*each[0].split("."), *each[1:]) for each in caches]
    old = [(f"{n}.encoder.{at}", *dims, "source", 8) for n, at, *dims in split]
    new = [(f"{n}.decoder.{at}", *dims) for n, at, *dims in split]
    mask = make_fill("mask", side="right")
    inputs = (
        _tokens("input_ids", "batch", "source"),
        _tokens("attention_mask", "batch", "source", fill=mask),
    )
    outputs = tuple(declare_output(f"present.{each}", *dims) for each, *dims in old)
    if part == "decoder":
        inputs = (
            _tokens("input_ids", "batch", "length"),
            _tokens("encoder_attention_mask", "batch", "source", fill=mask),
            *(declare_input(f"past_key_values.{n}", *dims, "past", 8) for n, *dims in new),
            *(declare_input(f"past_key_values.{n}", *dims) for n, *dims in old),
        )
        states = (declare_output(f"present.{n}", *dims, "total", 8) for n, *dims in new)
        outputs = (declare_output("logits", "batch", "length", 64), *states)
    feeds = {"logits": "input_ids"}
    feeds |= {f"present.{n}": f"past_key_values.{n}" for n, *_ in new}
    trap = _component(
        name, story, "bart", Component(name=part), (inputs, outputs), verdict,
        rollout=Rollout(steps=32, feeds=feeds) if part == "decoder" else None,
        generate=Generate(part=part), init={"kind": kind},
    )  # fmt: skip
    return replace(trap, spec=trap.spec.model_copy(update={"axes": _grow(trap.spec.axes)}))


def _grow(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the axes of a decoder whose cache may be empty, with at most 64 tokens."""
    rule = SizeRule(kind="sum", operands=("past", "length"))
    total = Axis(name="total", example=12, max=64, rule=rule)
    return tuple(
        total if axis.name == "total" else axis.model_copy(update={"min": axis.name != "past"})
        for axis in axes
    )


def _change_weight(path: Path) -> None:
    """Scale one weight of the last layer; a constant would vanish in the normalization."""
    model = onnx.load(path)
    weight = next(item for item in model.graph.initializer if "h.1.mlp.c_proj.weight" in item.name)
    values = onnx.numpy_helper.to_array(weight) * np.float32(1.02)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)


_LEFT = make_fill("mask", side="left")
_PREFILL, _DECODE = Component(name="prefill"), Component(name="decode")
_FILE = "tests/traps/models/components.py"
_IGNORED = structure("signature", "the graph ignores input 'position_ids'")
_PADDED = Component(name="decode", prompt=f"{_FILE}:padded")
GPT2_LOOP = Rollout(steps=32, feeds=_feeds("input_ids"))
#: Loops that are not those of `generate`: keys as values, and no cache.
SWAPPED_LOOP = Rollout(
    steps=32,
    feeds={
        name: target.replace(".keys", "-").replace(".values", ".keys").replace("-", ".values")
        for name, target in GPT2_LOOP.feeds.items()
    },
)
TOKENS_LOOP = Rollout(steps=32, feeds={"logits": "input_ids"})
_T5_INPUTS = (
    _tokens("decoder_input_ids", "batch", 1),
    declare_input("encoder_outputs.last_hidden_state", "batch", "source", 16),
    *(declare_input(*each) for each in _cache("input.", 8, "past", "self_attention_cache.")),
    *(declare_input(*each) for each in _cache("input.", 8, "source", "cross_attention_cache.")),
)
_BERT = (
    (
        _tokens("input_ids", "batch", "length"),
        _tokens("attention_mask", "batch", "length", fill=make_fill("mask", side="right")),
    ),
    (
        declare_output("last_hidden_state", "batch", "length", 16),
        declare_output("pooler_output", "batch", 16),
    ),
)
_MASKED = f"{_FILE}:masked"
_SLIDING = (
    (
        *decode(4, _tokens("attention_mask", "batch", "total", fill=make_fill("ones")))[0],
        *(
            declare_input(
                f"input.past_key_values.layers.{n}._sliding_window_tensor",
                dtype="int64",
                fill=make_fill("value", value=16),
                shape=(),
            )
            for n in _LAYERS
        ),
    ),
    (
        declare_output("logits", "batch", 1, 64),
        *(
            Output(name=name, shape=shape, dtype=dtype)
            for n in _LAYERS
            for kind, shape, dtype in (
                ("keys", ("batch", 2, "total", 4), "float32"),
                ("values", ("batch", 2, "total", 4), "float32"),
                ("_sliding_window_tensor", (), "int64"),
            )
            for name in [f"output.past_key_values.layers.{n}.{kind}"]
        ),
    ),
)

COMPONENTS = (
    _component(
        "transformers: prefill of GPT-2", "the cache is an output", "gpt2", _PREFILL, _prefill(8)
    ),
    _component(
        "transformers: decode of GPT-2",
        "32 greedy tokens",
        "gpt2",
        _DECODE,
        decode(8),
        rollout=GPT2_LOOP,
    ),
    _component(
        "transformers: a loop of GPT-2 with exchanged caches",
        "keys are fed as values",
        "gpt2",
        _DECODE,
        decode(8),
        failed(Stage.SOURCE, "rollout: step 2 has other logits than `generate`"),
        rollout=SWAPPED_LOOP,
    ),
    _component(
        "transformers: a loop of GPT-2 without a cache",
        "the loop feeds tokens only",
        "gpt2",
        _DECODE,
        decode(8),
        failed(Stage.SOURCE, "rollout: step 2 has other logits than `generate`"),
        rollout=TOKENS_LOOP,
    ),
    _component(
        "transformers: decode of GPT-2 with a condition on its cache",
        "the file keeps the branch of one size",
        "gpt2",
        _DECODE,
        decode(8),
        parity("axes", "past"),
        init={"kind": "limited"},
    ),
    _component(
        "transformers: decode of GPT-2 with another weight",
        "one weight of the file is changed",
        "gpt2",
        _DECODE,
        decode(8),
        parity("parity", "output '"),
        tamper=_change_weight,
    ),
    _component(
        "transformers: decode of Llama with padding",
        "32 greedy tokens after a prompt with padding",
        "llama",
        _PADDED,
        decode(4, _tokens("attention_mask", "batch", "total", fill=_LEFT)),
        rollout=GPT2_LOOP,
    ),
    _component(
        "transformers: decode of Mistral",
        "a sliding window, with scalars among the states",
        "mistral",
        _DECODE,
        _SLIDING,
        limits={"past": 14},
    ),
    _decoder(
        "transformers: the decoder of Llama",
        "one file for prompts and tokens, four prompts",
        "llama",
        4,
    ),
    _vary(
        _decoder(
            "transformers: the decoder of Llama in float16",
            "a share of the tokens of `generate`",
            "llama",
            4,
        ),
        "to_float16",
        0.98,
        sqnr=40,
    ),
    _vary(
        _decoder(
            "transformers: the decoder of Llama in int8",
            "another share of the tokens of `generate`",
            "llama",
            4,
        ),
        "to_int8",
        0.9,
        sqnr=12,
    ),
    _vary(
        _decoder(
            "transformers: the decoder of Llama in int8, which promises too much",
            "the file selects other tokens than promised",
            "llama",
            4,
            parity("rollout", "tokens are PyTorch's, a share of"),
        ),
        "to_int8",
        0.99,
        sqnr=12,
    ),
    _decoder(
        "transformers: the decoder of Mistral past its window",
        "a sliding window of 16, and a prompt of 19 tokens",
        "mistral",
        4,
    ),
    _decoder(
        "transformers: the decoder of GPT-2",
        "every position has a vector of its own",
        "gpt2",
        8,
    ),
    _decoder(
        "transformers: the decoder of GPT-2 with another late token",
        "only the loop reaches the positions at which the file is wrong",
        "gpt2",
        8,
        parity("rollout", "of 96: the file selects token"),
        init={"kind": "late"},
    ),
    *(
        _decoder(
            f"transformers: the decoder of {name}, {kind}",
            story,
            source,
            8 if source == "gpt2" else 4,
            parity(check, "output '") if check else _IGNORED,
            init={"kind": kind},
            steps=8,
        )
        for name, source, kind, check, story in (
            ("GPT-2", "gpt2", "shifted", "parity", "the file counts positions from 1"),
            ("GPT-2", "gpt2", "unpadded", "", "the file counts padding as positions"),
            ("Llama", "llama", "unmasked", "parity", "the file reads the padding"),
            ("Llama", "llama", "forgetful", "parity", "the file does not read the cache"),
            ("Llama", "llama", "swapped", "parity", "the file takes keys of the cache as values"),
            ("Llama", "llama", "heads", "parity", "the file takes the cache of the other head"),
            ("Mistral", "mistral", "endless", "axes", "the file has no sliding window"),
            ("Mistral", "mistral", "narrow", "axes", "the window of the file has 12 tokens"),
        )
    ),
    _pair("transformers: the decoder of BART", "the cache of the encoder is an input"),
    _pair("transformers: the encoder of BART", "the cache of `generate`", part="encoder"),
    _pair(
        "transformers: the decoder of BART without the mask",
        "the file reads the padding of the encoder",
        parity("parity", "more problems"),
        kind="mask",
    ),
    _pair(
        "transformers: the decoder of BART with exchanged caches",
        "the file takes keys of the encoder as values",
        parity("parity", "more problems"),
        kind="swapped",
    ),
    _pair(
        "transformers: the encoder of BART with other tokens",
        "`generate` encodes the tokens in another order",
        failed(
            Stage.SOURCE,
            "layers.0.keys than the encoder of its inputs",
        ),
        part="encoder",
        kind="flipped",
    ),
    _component(
        "transformers: prefill of T5",
        "the decoder's first tokens, with the states of the encoder",
        "t5",
        Component(name="prefill", prompt=f"{_FILE}:translation"),
        (
            (_tokens("decoder_input_ids", "batch", "length"), _T5_INPUTS[1]),
            _translate("length", "length", ""),
        ),
    ),
    _component(
        "transformers: decode of T5",
        "two caches, of which one grows for 32 tokens",
        "t5",
        Component(name="decode", prompt=f"{_FILE}:translation"),
        (_T5_INPUTS, _translate(1, "total", "output.")),
        rollout=Rollout(steps=32, feeds=_feeds("decoder_input_ids", "self_attention_cache.")),
    ),
    _component(
        "transformers: the model BERT",
        "a model without `generate`, called with the prompt",
        "bert",
        Component(name="model", prompt=_MASKED),
        _BERT,
    ),
    _component(
        "transformers: decode of BERT",
        "a model without `generate` has no components",
        "bert",
        Component(name="decode", prompt=_MASKED),
        _BERT,
        refused(Stage.SOURCE, "cannot split BertModel by `generate`"),
    ),
    _component(
        "transformers: an unknown component",
        "the message lists those of the model",
        "gpt2",
        Component(name="decoders"),
        decode(8),
        refused(Stage.SOURCE, "did you mean 'decode'?; use one of prefill, decode, model"),
    ),
    _component(
        "transformers: a component without an input",
        "the entry forgets the positions",
        "gpt2",
        _PREFILL,
        (_prefill(8)[0][:1], _prefill(8)[1]),
        failed(Stage.SOURCE, "the entry declares them without position_ids"),
    ),
    _component(
        "transformers: a component with another rank",
        "the entry declares the cache of another configuration",
        "gpt2",
        _DECODE,
        decode(4),
        failed(Stage.SOURCE, "float32 [3, 2, 5, 8], declared float32 [batch, 2, past, 4]"),
    ),
    _component(
        "transformers: a prompt that is no table",
        "the message names the expected type",
        "gpt2",
        Component(name="decode", prompt=f"{_FILE}:text"),
        decode(8),
        refused(Stage.SOURCE, "returned a str, expected a dict of arguments by name"),
    ),
)
