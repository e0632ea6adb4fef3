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
_LINEAR = {
    **_DECODER, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
_VISION = {**_LAYERS, "intermediate_size": 32, "image_size": 16, "patch_size": 8}
_SMALL_PATCHES = {**_VISION, "patch_size": 4}
_PACKED_TEXT = {**_DECODER, "num_attention_heads": 2, "num_key_value_heads": 1}
_PACKED_VISION = {
    "depth": 2, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}  # fmt: skip
_ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
_PACKED_TOKENS = {
    "image_token_id": 63, "video_token_id": 62, "vision_start_token_id": 61,
    "vision_end_token_id": 60,
}  # fmt: skip
_TILES = [[16, 32], [32, 16], [32, 32]]


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


def mamba2() -> transformers.PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "n_groups": 2}
    sizes |= {"num_heads": 4, "head_dim": 8, "chunk_size": 4}
    return _build(transformers.Mamba2ForCausalLM, **_TOKENS, **sizes)


def falcon_mamba() -> transformers.PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
    return _build(transformers.FalconMambaForCausalLM, **_TOKENS, **sizes)


def lfm2() -> transformers.PreTrainedModel:
    return _build(transformers.Lfm2ForCausalLM, **_DECODER, layer_types=["conv", "full_attention"])


def falcon_h1() -> transformers.PreTrainedModel:
    sizes = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4}
    return _build(transformers.FalconH1ForCausalLM, **_DECODER, **sizes, mamba_chunk_size=4)


def jamba() -> transformers.PreTrainedModel:
    sizes = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4}
    sizes |= {"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4}
    return _build(transformers.JambaForCausalLM, **_DECODER, **sizes)


def qwen3_next() -> transformers.PreTrainedModel:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return _build(
        transformers.Qwen3NextForCausalLM, **_LINEAR, **experts, shared_expert_intermediate_size=16
    )


def qwen3_5() -> transformers.PreTrainedModel:
    return _build(transformers.Qwen3_5ForCausalLM, **_LINEAR)


def olmo_hybrid() -> transformers.PreTrainedModel:
    return _build(transformers.OlmoHybridForCausalLM, **_LINEAR | {"linear_num_value_heads": 2})


def bamba() -> transformers.PreTrainedModel:
    sizes = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 2}
    sizes |= {"mamba_chunk_size": 4}
    return _build(transformers.BambaForCausalLM, **_DECODER, **sizes, attn_layer_indices=[1])


def granite_hybrid() -> transformers.PreTrainedModel:
    sizes = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 2}
    sizes |= {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16}
    kinds = ["mamba", "attention"]
    return _build(
        transformers.GraniteMoeHybridForCausalLM, **_DECODER, **sizes, mamba_chunk_size=4,
        layer_types=kinds,
    )  # fmt: skip


def zamba2() -> transformers.PreTrainedModel:
    sizes = {"mamba_d_state": 4, "n_mamba_heads": 4, "mamba_headdim": 8, "mamba_ngroups": 2}
    return _build(
        transformers.Zamba2ForCausalLM, **_DECODER, **sizes, chunk_size=4,
        layers_block_type=["mamba", "hybrid"],
    )  # fmt: skip


def nemotron_h() -> transformers.PreTrainedModel:
    sizes = {"mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 4, "n_groups": 2}
    sizes |= {each: _DECODER[each] for each in _DECODER if each != "num_hidden_layers"}
    return _build(
        transformers.NemotronHForCausalLM, **sizes, chunk_size=4, head_dim=8,
        layers_block_type=["mamba", "attention"],
    )  # fmt: skip


def recurrent_gemma() -> transformers.PreTrainedModel:
    """Return a model that keeps its states in its modules."""
    return _build(
        transformers.RecurrentGemmaForCausalLM, **_DECODER, lru_width=16, attention_window_size=8,
        block_types=["recurrent", "attention"],
    )  # fmt: skip


def rwkv() -> transformers.PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2}
    return _build(transformers.RwkvForCausalLM, **_TOKENS, **sizes)


def minimax() -> transformers.PreTrainedModel:
    kinds = ["linear_attention", "full_attention"]
    return _build(
        transformers.MiniMaxForCausalLM, **_DECODER, head_dim=4, layer_types=kinds,
        num_local_experts=4, block_size=4,
    )  # fmt: skip


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


def qwen2_vl() -> transformers.PreTrainedModel:
    return _build(
        transformers.Qwen2VLForConditionalGeneration, **_PACKED_TOKENS,
        text_config={**_PACKED_TEXT, "rope_parameters": _ROPE},
        vision_config={**_PACKED_VISION, "embed_dim": 16, "mlp_ratio": 2},
    )  # fmt: skip


def qwen2_5_vl() -> transformers.PreTrainedModel:
    """Return a model whose layers but the last attend to windows of 2 x 2 features."""
    sizes = {"out_hidden_size": 16, "intermediate_size": 32, "window_size": 16}
    return _build(
        transformers.Qwen2_5_VLForConditionalGeneration, **_PACKED_TOKENS,
        text_config={**_PACKED_TEXT, "rope_parameters": _ROPE},
        vision_config={**_PACKED_VISION, **sizes, "fullatt_block_indexes": [1]},
    )  # fmt: skip


def qwen3_vl() -> transformers.PreTrainedModel:
    sizes = {"out_hidden_size": 16, "intermediate_size": 32, "num_position_embeddings": 16}
    rope = {**_ROPE, "mrope_interleaved": True}
    return _build(
        transformers.Qwen3VLForConditionalGeneration, **_PACKED_TOKENS,
        text_config={**_PACKED_TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={**_PACKED_VISION, **sizes, "deepstack_visual_indexes": [0, 1]},
    )  # fmt: skip


def idefics3() -> transformers.PreTrainedModel:
    return _build(
        transformers.Idefics3ForConditionalGeneration, image_token_id=63, scale_factor=2,
        text_config={"model_type": "llama", **_DECODER}, vision_config=_SMALL_PATCHES,
    )  # fmt: skip


def smolvlm() -> transformers.PreTrainedModel:
    return _build(
        transformers.SmolVLMForConditionalGeneration, image_token_id=63, scale_factor=2,
        text_config={"model_type": "llama", **_DECODER}, vision_config=_SMALL_PATCHES,
    )  # fmt: skip


def llava_next() -> transformers.PreTrainedModel:
    vision = transformers.CLIPVisionConfig(**_VISION, projection_dim=16)
    return _build(
        transformers.LlavaNextForConditionalGeneration, image_token_id=63,
        text_config=transformers.LlamaConfig(**_DECODER), vision_config=vision,
        image_grid_pinpoints=_TILES,
    )  # fmt: skip


def llava_onevision() -> transformers.PreTrainedModel:
    return _build(
        transformers.LlavaOnevisionForConditionalGeneration, image_token_id=63, video_token_id=62,
        text_config=transformers.Qwen2Config(**_DECODER),
        vision_config=transformers.SiglipVisionConfig(**_VISION), image_grid_pinpoints=_TILES,
    )  # fmt: skip


def mistral3() -> transformers.PreTrainedModel:
    return _build(
        transformers.Mistral3ForConditionalGeneration, image_token_id=63, spatial_merge_size=2,
        text_config=transformers.MistralConfig(**_DECODER),
        vision_config=transformers.PixtralVisionConfig(**_SMALL_PATCHES, head_dim=4),
    )  # fmt: skip


def gemma3_vl() -> transformers.PreTrainedModel:
    """Return a model in which the tokens of a picture attend to each other."""
    text = transformers.Gemma3TextConfig(
        **_DECODER, head_dim=4, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    return _build(
        transformers.Gemma3ForConditionalGeneration, image_token_id=63, boi_token_id=61,
        eoi_token_id=60, mm_tokens_per_image=4, text_config=text,
        vision_config=transformers.SiglipVisionConfig(**_SMALL_PATCHES),
    )  # fmt: skip


def paligemma() -> transformers.PreTrainedModel:
    """Return a model in which the tokens of a prompt attend to each other."""
    vision = {"model_type": "siglip_vision_model", **_VISION, "projection_dim": 16}
    return _build(
        transformers.PaliGemmaForConditionalGeneration, image_token_id=63, projection_dim=16,
        text_config={"model_type": "gemma", **_DECODER, "head_dim": 4}, vision_config=vision,
    )  # fmt: skip


def internvl() -> transformers.PreTrainedModel:
    sizes = {"image_size": [16, 16], "patch_size": [4, 4]}
    return _build(
        transformers.InternVLForConditionalGeneration, image_token_id=63, image_seq_length=4,
        text_config=transformers.Qwen2Config(**_DECODER),
        vision_config=transformers.InternVLVisionConfig(**{**_VISION, **sizes}),
    )  # fmt: skip
