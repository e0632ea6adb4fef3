"""The decoder of Llama as two modules: one for prompts, and one for each further token."""

from __future__ import annotations

from nets import llama
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.exporters.utils import apply_patches


class _Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = llama()

    def run(self, **call: Tensor | DynamicCache) -> list[Tensor]:
        """Return the logits, and the keys and values of each layer."""
        with apply_patches("dynamo"):
            returned = self.model(**call, use_cache=True)
        layers = returned.past_key_values.layers
        return [returned.logits, *(each for layer in layers for each in (layer.keys, layer.values))]


class Prefill(_Part):
    """Reads a prompt."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        positions = (attention_mask.cumsum(-1) - 1).clamp(0)
        return self.run(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions)


class Decode(_Part):
    """Reads one more token."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *states: Tensor
    ) -> list[Tensor]:
        cache = DynamicCache()
        for layer, index in enumerate(range(0, len(states), 2)):
            cache.update(states[index], states[index + 1], layer)
        return self.run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
        )
