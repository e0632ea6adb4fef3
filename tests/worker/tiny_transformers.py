"""The few calls of the package transformers that components need, with a tiny model of torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class GenerationConfig:
    def __init__(self, **values: Any) -> None:
        self.values = values


class Layer:
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values


class Cache:
    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers


class PreTrainedModel(nn.Module):
    """A decoder with 64 tokens and positions, and two layers of two heads of size 8."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.generation_config = GenerationConfig()
        self.tokens, self.positions = nn.Embedding(64, 16), nn.Embedding(64, 16)
        self.parts = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.dummy_inputs = {"input_ids": torch.arange(15).reshape(3, 5) % 7}

    def can_generate(self) -> bool:
        return True

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, past_key_values: Cache | None = None
    ) -> dict[str, Any]:
        hidden, layers = self.tokens(input_ids) + self.positions(position_ids), []
        for index, part in enumerate(self.parts):
            query, keys, values = (
                each.unflatten(-1, (2, 8)).transpose(1, 2) for each in part(hidden).chunk(3, -1)
            )
            if past_key_values is not None:
                past = past_key_values.layers[index]
                keys, values = torch.cat([past.keys, keys], 2), torch.cat([past.values, values], 2)
            layers.append(Layer(keys, values))
            shape = (query.shape[2], keys.shape[2])
            mask = torch.ones(shape, dtype=torch.bool).tril(keys.shape[2] - query.shape[2])
            scores = nn.functional.scaled_dot_product_attention(query, keys, values, mask)
            hidden = hidden + scores.transpose(1, 2).flatten(2)
        return {"logits": hidden @ self.tokens.weight.T, "past_key_values": Cache(layers)}

    def run_greedily(self, input_ids: Tensor, steps: int) -> tuple[list[dict], list[Tensor]]:
        calls, logits, cache = [], [], None
        ids, first = input_ids, 0
        for _ in range(steps):
            positions = torch.arange(first, first + ids.shape[1]).repeat(len(ids), 1)
            calls.append({"input_ids": ids, "position_ids": positions})
            calls[-1] |= {"past_key_values": cache} if cache else {}
            returned = self(**calls[-1])
            cache, first = returned["past_key_values"], first + ids.shape[1]
            logits.append(returned["logits"][:, -1])
            ids = logits[-1].argmax(-1, keepdim=True)
        return calls, logits

    def generate(
        self, input_ids: Tensor, max_new_tokens: int, attention_mask: Tensor, **_: Any
    ) -> SimpleNamespace:
        assert attention_mask.shape == input_ids.shape
        return SimpleNamespace(logits=self.run_greedily(input_ids, max_new_tokens)[1])


# The functions of the module `exporters.utils`.
def get_leaf_tensors(value: Any, path: str = "") -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {path: value}
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    named = {}
    for key, each in (parts if isinstance(parts, dict) else vars(parts)).items():
        named |= get_leaf_tensors(each, f"{path}.{key}".lstrip("."))
    return named


def disambiguate_io_names(inputs: list[str], outputs: list[str]) -> tuple[list[str], list[str]]:
    both = {*inputs} & {*outputs}
    return (
        [f"input.{name}" if name in both else name for name in inputs],
        [f"output.{name}" if name in both else name for name in outputs],
    )


def decompose_for_generation(model: PreTrainedModel, prompt: dict[str, Any]) -> dict[str, Any]:
    calls, _ = model.run_greedily(prompt["input_ids"], 2)
    return {"prefill": (model, calls[0]), "decode": (model, calls[1])}


def prepare_for_export(module: Any, call: dict[str, Any]) -> tuple[Any, dict[str, Any], dict]:
    return module, call, {}
