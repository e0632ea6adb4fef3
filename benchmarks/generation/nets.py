"""Tiny models of transformers with two layers, each from its configuration, for `exporter add`.

The exporter sets the seed of the entry before it calls one of these functions.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

_TOKENS = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
_HEADS = {**_LAYERS, "intermediate_size": 32, "max_position_embeddings": 64}
_DECODER = {**_TOKENS, **_HEADS, "num_key_value_heads": 2}
_PAIR = {
    **_TOKENS, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
_VISION = {**_LAYERS, "intermediate_size": 32, "image_size": 16, "patch_size": 8}


def _build(model: type, **settings: Any) -> transformers.PreTrainedModel:
    """Return a model whose weights have ordinary sizes; with small ones all tokens are equal."""
    built = model(model.config_class(**settings))
    for parameter in built.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return built


def gpt2() -> transformers.PreTrainedModel:
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return _build(transformers.GPT2LMHeadModel, **_TOKENS, **sizes)


def llama() -> transformers.PreTrainedModel:
    return _build(transformers.LlamaForCausalLM, **_DECODER)


def mistral() -> transformers.PreTrainedModel:
    return _build(transformers.MistralForCausalLM, **_DECODER, sliding_window=8)


def qwen3() -> transformers.PreTrainedModel:
    return _build(transformers.Qwen3ForCausalLM, **_DECODER, head_dim=4)


def gemma3() -> transformers.PreTrainedModel:
    kinds = ["sliding_attention", "full_attention"]
    return _build(
        transformers.Gemma3ForCausalLM, **_DECODER, head_dim=4, sliding_window=8, layer_types=kinds
    )


def phi3() -> transformers.PreTrainedModel:
    return _build(transformers.Phi3ForCausalLM, **_DECODER)


def opt() -> transformers.PreTrainedModel:
    sizes = {"ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": 16}
    return _build(transformers.OPTForCausalLM, **_TOKENS, **_LAYERS, **sizes)


def bloom() -> transformers.PreTrainedModel:
    return _build(transformers.BloomForCausalLM, **_TOKENS, hidden_size=16, n_layer=2, n_head=4)


def falcon() -> transformers.PreTrainedModel:
    return _build(transformers.FalconForCausalLM, **_TOKENS, **_LAYERS, multi_query=False)


def falcon_one_key() -> transformers.PreTrainedModel:
    """Return a model whose heads share one key."""
    return _build(transformers.FalconForCausalLM, **_TOKENS, **_LAYERS, multi_query=True)


def mixtral() -> transformers.PreTrainedModel:
    return _build(transformers.MixtralForCausalLM, **_DECODER, num_local_experts=4)


def mamba() -> transformers.PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
    return _build(transformers.MambaForCausalLM, **_TOKENS, **sizes)


def t5() -> transformers.PreTrainedModel:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    tokens = {"vocab_size": 64, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return _build(transformers.T5ForConditionalGeneration, **tokens, **sizes)


def bart() -> transformers.PreTrainedModel:
    sizes = {"max_position_embeddings": 64, "forced_eos_token_id": None}
    return _build(transformers.BartForConditionalGeneration, **_PAIR, **sizes)


def marian() -> transformers.PreTrainedModel:
    sizes = {"max_position_embeddings": 64, "decoder_vocab_size": 64}
    return _build(transformers.MarianMTModel, **_PAIR, **sizes)


def whisper() -> transformers.PreTrainedModel:
    sizes = {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 64}
    return _build(transformers.WhisperForConditionalGeneration, **_PAIR, **sizes)


def bert() -> transformers.PreTrainedModel:
    return _build(transformers.BertModel, vocab_size=64, **_HEADS)


def vit() -> transformers.PreTrainedModel:
    return _build(transformers.ViTModel, **_VISION)


def llava() -> transformers.PreTrainedModel:
    text = transformers.LlamaConfig(**_DECODER)
    vision = transformers.CLIPVisionConfig(**_VISION, projection_dim=16)
    return _build(
        transformers.LlavaForConditionalGeneration, text_config=text, vision_config=vision,
        image_token_index=63, image_seq_length=4,
    )  # fmt: skip
