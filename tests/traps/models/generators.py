"""Models of transformers, built small from their configurations, and changed ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.traps.models.ties import is_exporting


def _scale(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """Give the weights ordinary sizes: with the defaults, all tokens are nearly equal."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def _change_mask(kind: str, mask: Tensor, ids: Tensor, end: int) -> Tensor:
    """Return the mask of a file that has one of the usual mistakes."""
    (rows, total), length = mask.shape, ids.shape[1]
    is_old = torch.arange(total) < total - length
    match kind:
        case "unmasked":
            return torch.ones_like(mask)
        case "unended":  # each token that ends a text is taken as padding
            return mask * torch.cat([torch.ones(rows, total - length) > 0, ids != end], 1)
        case "mirrored":
            return mask.flip(1)
        case "acausal":  # a mask with four dimensions is complete
            allowed = mask[:, None, None].bool().expand(rows, 1, length, total)
            return torch.where(allowed, 0.0, -1e9)
        case "forgetful":
            return mask * ~is_old
        case _:
            return mask


def _find_cache(call: Mapping[str, Any]) -> Any:
    """Return the cache, whose argument has another name since transformers 5.24."""
    return call["cache" if "cache" in call else "past_key_values"]


def _change_call(model: Any, kind: str, call: dict[str, Any]) -> None:
    """Change the call of an export, so that the file has one of the usual mistakes."""
    positions, caches = call["position_ids"], _find_cache(call).layers
    (rows, length), past = call["input_ids"].shape, caches[0].keys.shape[2]
    end = model.config.eos_token_id
    call["attention_mask"] = _change_mask(kind, call["attention_mask"], call["input_ids"], end)
    match kind:
        case "shifted":
            call["position_ids"] = (positions + 1).clamp(max=63)
        case "unpadded":  # as if no row had padding
            call["position_ids"] = torch.arange(past, past + length).expand(rows, length)
        case "swapped":
            for layer in caches:
                layer.keys, layer.values = layer.values, layer.keys
        case "heads":
            for layer in caches:
                layer.keys = layer.keys.flip(1)
        case "endless":
            model.config.sliding_window = None
        case "narrow":
            model.config.sliding_window = 12


class ChangedGPT2(transformers.GPT2LMHeadModel):
    """Its file has another call, or other tokens at positions that no declared input has."""

    kind = ""

    @wraps(transformers.GPT2LMHeadModel.forward)  # `generate` reads the parameters
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_exporting():
            _change_call(self, self.kind, kwargs)
        returned = super().forward(*args, **kwargs)
        if is_exporting() and self.kind == "late":
            is_late = kwargs["position_ids"][..., None] > 24
            returned["logits"] = torch.where(is_late, -returned["logits"], returned["logits"])
        return returned


class ChangedLlama(transformers.LlamaForCausalLM):
    """Its file has another call."""

    kind = ""

    @wraps(transformers.LlamaForCausalLM.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_exporting():
            _change_call(self, self.kind, kwargs)
        return super().forward(*args, **kwargs)


class ChangedMistral(transformers.MistralForCausalLM):
    """Its file has another sliding window."""

    kind = ""

    @wraps(transformers.MistralForCausalLM.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        window = self.config.sliding_window
        if is_exporting():
            _change_call(self, self.kind, kwargs)
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.config.sliding_window = window


class ChangedMamba(transformers.MambaForCausalLM):
    """Its file reads or returns other states of convolutions and linear attention."""

    kind = ""

    @wraps(transformers.MambaForCausalLM.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layers = _find_cache(kwargs).layers if is_exporting() else []
        old = [layer.conv_states[0].clone() for layer in layers]
        if layers and self.kind == "mirrored":
            layers[0].conv_states[0] = old[0].flip(-1)
        if layers and self.kind == "one row":
            layers[1].recurrent_states[0] = layers[1].recurrent_states[0][:1].expand_as(old[1])
            layers[1].recurrent_states[0] = layers[1].recurrent_states[0].clone()
        returned = super().forward(*args, **kwargs)
        for layer, before in zip(layers, old, strict=True):
            if self.kind == "stale":
                layer.conv_states[0] = before
        if layers and self.kind == "exchanged":
            states = [layer.recurrent_states[0] for layer in layers]
            layers[0].recurrent_states[0], layers[1].recurrent_states[0] = reversed(states)
        return returned


class LimitedGPT2(transformers.GPT2LMHeadModel):
    """A condition on the size of the cache, which a file has only once."""

    @wraps(transformers.GPT2LMHeadModel.forward)  # `generate` reads the parameters
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        returned = super().forward(*args, **kwargs)
        if _find_cache(kwargs).get_seq_length() < 10:
            returned["logits"] = returned["logits"] + 1
        return returned


def gpt2(kind: str = "") -> transformers.PreTrainedModel:
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = LimitedGPT2(config) if kind == "limited" else ChangedGPT2(config)
    model.kind = kind
    return _scale(model)


def llama(kind: str = "") -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    model = ChangedLlama(config)
    model.kind = kind
    return _scale(model)


def mistral(kind: str = "") -> transformers.PreTrainedModel:
    """Return a model with a sliding window, whose cache also has scalars."""
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        sliding_window=16,
    )  # fmt: skip
    model = ChangedMistral(config)
    model.kind = kind
    return _scale(model)


def mamba(kind: str = "") -> transformers.PreTrainedModel:
    config = transformers.MambaConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, pad_token_id=0
    )
    model = ChangedMamba(config)
    model.kind = kind
    return _scale(model)


def lfm2() -> transformers.PreTrainedModel:
    """Return a model with a convolution and attention, whose cache has both."""
    config = transformers.Lfm2Config(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        layer_types=["conv", "full_attention"], pad_token_id=0,
    )  # fmt: skip
    return _scale(transformers.Lfm2ForCausalLM(config))


class ChangedBart(transformers.BartForConditionalGeneration):
    """Its file has another mask, or takes keys as values; or `generate` encodes other tokens."""

    kind = ""

    @wraps(transformers.BartForConditionalGeneration.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_exporting() and self.kind == "mask":
            kwargs["attention_mask"] = torch.ones_like(kwargs["attention_mask"])
        if is_exporting() and self.kind == "mirrored":
            kwargs["attention_mask"] = kwargs["attention_mask"].flip(1)
        if is_exporting() and self.kind == "swapped":
            for layer in _find_cache(kwargs).cross_attention_cache.layers:
                layer.keys, layer.values = layer.values, layer.keys
        return super().forward(*args, **kwargs)

    def _prepare_text_encoder_decoder_kwargs_for_generation(
        self, inputs_tensor: Tensor, **kwargs: Any
    ) -> Any:
        inputs = inputs_tensor.flip(1) if self.kind == "flipped" else inputs_tensor
        return super()._prepare_text_encoder_decoder_kwargs_for_generation(inputs, **kwargs)


def bart(kind: str = "") -> transformers.PreTrainedModel:
    config = transformers.BartConfig(
        vocab_size=64, d_model=16, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2,
        max_position_embeddings=64,
    )  # fmt: skip
    model = ChangedBart(config)
    model.kind = kind
    return _scale(model)


def t5() -> transformers.PreTrainedModel:
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return _scale(transformers.T5ForConditionalGeneration(config))


def bert() -> transformers.PreTrainedModel:
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    return _scale(transformers.BertModel(config))
