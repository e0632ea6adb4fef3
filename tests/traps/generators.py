"""Traps: models of transformers that generate, exported by its own exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

from exporter.manifest import Axis, Comparator, FilePass, Input, Output, Rollout
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
    structure,
)

_WORDS = make_fill("randint", high=64)
_EARLY = make_fill("randint", high=20)
_CACHES = [(f"{n}.{kind}", "batch", 2) for n in (0, 1) for kind in ("key", "value")]
_NAMES = [n for n, *_ in _CACHES]
_TOKENS = {"logits": "input_ids"}
#: The loop of a decoder, and one that exchanges keys and values.
_FEEDS = _TOKENS | {f"present.{n}": f"past_key_values.{n}" for n in _NAMES}
_SWAPPED = _TOKENS | {
    f"present.{one}": f"past_key_values.{other}"
    for pair in (_NAMES[:2], _NAMES[2:])
    for one, other in zip(pair, reversed(pair), strict=True)
}
_Signature: TypeAlias = "tuple[tuple[Input, ...], tuple[Output, ...]]"


def _generator(
    name: str,
    story: str,
    source: str,
    generate: Generate,
    signature: _Signature,
    verdict: Verdict = SOUND,
    *,
    tamper: Tamper | None = None,
    **fields: object,
) -> Trap:
    inputs, outputs = signature
    numbered = enumerate(inputs)
    dims = {dim for item in (*inputs, *outputs) for dim in item.shape}
    spec = contract(
        f"generators.py:{source}",
        DYNAMO,
        exporter="transformers",
        generate=generate,
        inputs=tuple(item.model_copy(update={"at": f"args[{n}]"}) for n, item in numbered),
        outputs=outputs,
        axes=tuple(axis for axis in _AXES if axis.name in dims),
        timeout=300.0,
        **fields,
    )
    return Trap(
        name=name, story=story, spec=spec, verdict=verdict, tamper=tamper, package="transformers"
    )


#: Those of a cache that may be empty.
_AXES = (
    Axis(name="batch", example=3, min=1),
    Axis(name="length", example=5, min=1, max=32),
    Axis(name="past", example=7, min=0, max=32),
    Axis(name="total", example=12, max=64, rule=SizeRule(kind="sum", operands=("past", "length"))),
    Axis(name="source", example=4, min=1),
)


def _tokens(name: str, *shape: str | int, fill: object = _WORDS) -> Input:
    return declare_input(name, *shape, dtype="int64", fill=fill)


def _decoder(
    name: str,
    story: str,
    source: str,
    size: int,
    verdict: Verdict = SOUND,
    *,
    steps: int = 32,
    feeds: Mapping[str, str] = _FEEDS,
    left_out: str = "",
    **fields: Any,
) -> Trap:
    """Return the trap of an entry with `generate`, whose prompts begin with an empty cache."""
    inputs = (
        _tokens("input_ids", "batch", "length"),
        _tokens("attention_mask", "batch", "total", fill=make_fill("mask", side="left")),
        _tokens("position_ids", "batch", "length", fill=_EARLY),
        *(declare_input(f"past_key_values.{n}", *dims, "past", size) for n, *dims in _CACHES),
    )
    outputs = (
        declare_output("logits", "batch", "length", 64),
        *(declare_output(f"present.{n}", *dims, "total", size) for n, *dims in _CACHES),
    )
    signature = tuple(each for each in inputs if each.name != left_out), outputs
    return _generator(
        name, story, source, Generate(steps=steps), signature, verdict,
        rollout=Rollout(steps=steps, feeds=dict(feeds)), **fields,
    )  # fmt: skip


#: The states of Mamba's two layers; a convolution and attention of LFM2.
_MAMBA = {f"{n}.{kind}_state": ("batch", 32, 4) for n in (0, 1) for kind in ("conv", "recurrent")}
_LFM2 = {"0.conv_state": ("batch", 16, 3)} | {
    f"1.{kind}": ("batch", 2, "past", 4) for kind in ("key", "value")
}


def _states(
    name: str,
    story: str,
    source: str,
    states: Mapping[str, tuple[str | int, ...]],
    verdict: Verdict = SOUND,
    **fields: Any,
) -> Trap:
    """Return the trap of an entry whose file takes one token and its states."""
    positions = [_tokens("position_ids", "batch", 1, fill=_EARLY)] if source == "lfm2" else []
    inputs = (
        _tokens("input_ids", "batch", 1),
        *positions,
        *(declare_input(f"past_key_values.{n}", *dims) for n, dims in states.items()),
    )
    renamed = {n: ["total" if d == "past" else d for d in dims] for n, dims in states.items()}
    outputs = (
        declare_output("logits", "batch", 1, 64),
        *(declare_output(f"present.{n}", *dims) for n, dims in renamed.items()),
    )
    feeds = _TOKENS | {f"present.{n}": f"past_key_values.{n}" for n in states}
    trap = _generator(
        name, story, source, Generate(steps=8), (inputs, outputs), verdict,
        rollout=Rollout(steps=8, feeds=feeds), **fields,
    )  # fmt: skip
    rule = SizeRule(kind="sum", operands=("past", 1))
    axes = tuple(
        a.model_copy(update={"example": 8, "rule": rule}) if a.name == "total" else a
        for a in trap.spec.axes
    )
    return replace(trap, spec=trap.spec.model_copy(update={"axes": axes}))


def _vary(trap: Trap, name: str, tokens: float, **compare: float) -> Trap:
    """Return the trap of a variant by a pass, which promises a share of equal tokens."""
    compared = {"compare": Comparator.model_validate(compare)}
    outputs = tuple(each.model_copy(update=compared) for each in trap.spec.outputs)
    passes = (FilePass(call=f"tests/traps/models/passes.py:{name}"),)
    fields = {"passes": passes, "tokens": tokens, "outputs": outputs}
    return replace(trap, spec=trap.spec.model_copy(update=fields))


def _pair(
    name: str,
    story: str,
    source: str = "bart",
    verdict: Verdict = SOUND,
    *,
    part: Literal["decoder", "encoder"] = "decoder",
    **fields: Any,
) -> Trap:
    """Return the trap of an entry with a part of an encoder-decoder."""
    split = [(*each[0].split("."), *each[1:]) for each in _CACHES]
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
    return _generator(
        name, story, source, Generate(part=part, begin=0 if source == "t5" else 2),
        (inputs, outputs), verdict,
        rollout=Rollout(steps=32, feeds=feeds) if part == "decoder" else None, **fields,
    )  # fmt: skip


def _change_weight(path: Path) -> None:
    """Scale one weight of the last layer; a constant would vanish in the normalization."""
    model = onnx.load(path)
    weight = next(item for item in model.graph.initializer if "h.1.mlp.c_proj.weight" in item.name)
    values = onnx.numpy_helper.to_array(weight) * np.float32(1.02)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)


_IGNORED = structure("signature", "the graph ignores input 'position_ids'")

GENERATORS = (
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
        "every position has a vector of its own, and one token is padding and the end",
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
    _decoder(
        "transformers: the decoder of GPT-2 with a condition on its cache",
        "the file keeps the branch of one size",
        "gpt2",
        8,
        parity("axes", "past"),
        init={"kind": "limited"},
    ),
    _decoder(
        "transformers: the decoder of GPT-2 with another weight",
        "one weight of the file is changed",
        "gpt2",
        8,
        parity("parity", "output '"),
        tamper=_change_weight,
        steps=8,
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
            ("GPT-2", "gpt2", "unended", "parity", "the file takes each end token as padding"),
            ("Llama", "llama", "unmasked", "parity", "the file reads the padding"),
            ("Llama", "llama", "mirrored", "parity", "the file expects padding on the right"),
            ("Llama", "llama", "acausal", "parity", "each token reads those behind it"),
            ("Llama", "llama", "forgetful", "parity", "the file does not read the cache"),
            ("Llama", "llama", "swapped", "parity", "the file takes keys of the cache as values"),
            ("Llama", "llama", "heads", "parity", "the file takes the cache of the other head"),
            ("Mistral", "mistral", "endless", "axes", "the file has no sliding window"),
            ("Mistral", "mistral", "narrow", "axes", "the window of the file has 12 tokens"),
        )
    ),
    *(
        _decoder(
            f"transformers: a loop of GPT-2 {name}",
            story,
            "gpt2",
            8,
            failed(Stage.SOURCE, "rollout: prompt 2 x 5, step 2 has other logits than `generate`"),
            feeds=feeds,
        )
        for name, story, feeds in (
            ("with exchanged caches", "keys are fed as values", _SWAPPED),
            ("without a cache", "the loop feeds tokens only", _TOKENS),
        )
    ),
    _states("transformers: a step of Mamba", "a prompt token by token", "mamba", _MAMBA),
    _states("transformers: a step of LFM2", "a state, and a cache that grows", "lfm2", _LFM2),
    *(
        _states(
            f"transformers: a step of Mamba, {kind}",
            story,
            "mamba",
            _MAMBA,
            parity("parity", "output '"),
            init={"kind": kind},
        )
        for kind, story in (
            ("stale", "the file returns the states that it got"),
            ("exchanged", "the file exchanges the states of two layers"),
            ("mirrored", "the file shifts the state of a convolution in the other direction"),
            ("one row", "the file takes the state of the first row for all rows"),
        )
    ),
    _pair("transformers: the decoder of T5", "positions are distances", "t5"),
    _pair("transformers: the decoder of BART", "the cache of the encoder is an input"),
    _pair("transformers: the encoder of BART", "the cache of `generate`", part="encoder"),
    *(
        _pair(
            f"transformers: the decoder of BART {name}",
            story,
            verdict=parity("parity", "more problems"),
            init={"kind": kind},
        )
        for name, kind, story in (
            ("without the mask", "mask", "the file reads the padding of the encoder"),
            ("with a mirrored mask", "mirrored", "the file expects padding on the left"),
            ("with exchanged caches", "swapped", "the file takes keys of the encoder as values"),
        )
    ),
    _pair(
        "transformers: the encoder of BART with other tokens",
        "`generate` encodes the tokens in another order",
        verdict=failed(Stage.SOURCE, "layers.0.keys than the encoder of its inputs"),
        part="encoder",
        init={"kind": "flipped"},
    ),
    _decoder(
        "transformers: the decoder of BERT",
        "the model has no `generate`",
        "bert",
        8,
        failed(Stage.SOURCE, "`generate`: BertModel does not generate"),
    ),
    _decoder(
        "transformers: the decoder of GPT-2 without an input",
        "the interface forgets the positions",
        "gpt2",
        8,
        failed(Stage.SOURCE, "the entry declares them without position_ids"),
        left_out="position_ids",
    ),
    _decoder(
        "transformers: the decoder of GPT-2 with another rank",
        "the interface declares the cache of another configuration",
        "gpt2",
        4,
        failed(Stage.SOURCE, "declared float32 [batch, 2, past, 4]"),
    ),
)
