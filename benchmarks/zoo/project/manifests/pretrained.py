"""Models of the package `transformers`, built small from their configurations with seeded weights.

Nothing is downloaded. Each class below gives a model the signature that an export needs: tensors in
fixed positions, and a tuple of tensors.
"""

from typing import Any

import transformers
from torch import Tensor, nn
from weights import vary_weights

#: The same small sizes under the names that different configurations use for them.
WIDTHS = (
    "hidden_size",
    "d_model",
    "n_embd",
    "dim",
    "embed_dim",
    "embedding_size",
    "word_embed_proj_dim",
)
LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"),
    *("num_decoder_layers", "num_encoder_layers"),
)
HEADS = (
    *("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    *("decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"),
)
INNER = (
    *("intermediate_size", "n_inner", "hidden_dim", "ffn_dim", "encoder_ffn_dim"),
    *("decoder_ffn_dim", "d_ff", "d_inner", "ffn_hidden_size"),
)
LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
TINY = (
    dict.fromkeys(WIDTHS, 32)
    | dict.fromkeys(LAYERS, 2)
    | dict.fromkeys(HEADS, 4)
    | dict.fromkeys(INNER, 48)
    | dict.fromkeys(LENGTHS, 64)
    | {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "d_kv": 8}
)


def make_model(
    kind: str, head: str, sizes: bool | list[str], settings: dict[str, Any]
) -> nn.Module:
    """Build a model of `transformers` with weights of ordinary size.

    Args:
        kind: The type of the configuration, such as `bert`.
        head: The class, such as `AutoModel` or `BertForMaskedLM`.
        sizes: Whether the small sizes above apply, or those of them that do not.
        settings: The rest of the configuration.
    """
    unused = sizes if isinstance(sizes, list) else [] if sizes else TINY
    values = {name: size for name, size in TINY.items() if name not in unused} | settings
    config = transformers.AutoConfig.for_model(kind, **values)
    maker = getattr(transformers, head)
    model: nn.Module = maker.from_config(config) if head.startswith("Auto") else maker(config)
    vary_weights(model)
    return model.eval()


class Named(nn.Module):
    """Call a model by keyword and return the named fields of its output."""

    def __init__(
        self,
        kind: str,
        fields: list[str],
        head: str = "AutoModel",
        sizes: bool | list[str] = True,
        part: str = "",
        fixed: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        model = make_model(kind, head, sizes, settings)
        self.model = model.get_submodule(part)
        self.fields = fields
        self.fixed = fixed or {}

    def call(self, **tensors: Tensor | bool) -> tuple[Tensor, ...]:
        """Return the fields of the output."""
        output = self.model(**tensors, **self.fixed, return_dict=True)
        values = [getattr(output, field) for field in self.fields]
        return tuple(value[-1] if isinstance(value, tuple) else value for value in values)


class Text(Named):
    """An encoder of text with its mask."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Encode tokens."""
        return self.call(input_ids=input_ids, attention_mask=attention_mask)


class Tokens(Named):
    """A model of text without a mask."""

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Encode tokens."""
        return self.call(input_ids=input_ids)


class Layout(Named):
    """An encoder of text with a box for each token."""

    def forward(
        self, input_ids: Tensor, bbox: Tensor, attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        """Encode tokens at their places on a page."""
        return self.call(input_ids=input_ids, bbox=bbox, attention_mask=attention_mask)


class Decoder(Named):
    """A decoder that computes all logits at once, without a cache."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Compute the logits of each next token."""
        return self.call(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)


class Translator(Named):
    """An encoder of text and the decoder that reads it."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute the logits of each next token of the target."""
        return self.call(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        )


class Transcriber(Named):
    """An encoder of audio features and the decoder that reads it."""

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, ...]:
        """Compute the logits of each next token of the transcript."""
        return self.call(
            input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False
        )


class Image(Named):
    """A model of images."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """Encode images."""
        return self.call(pixel_values=pixel_values)


class Audio(Named):
    """A model of raw audio."""

    def forward(self, input_values: Tensor) -> tuple[Tensor, ...]:
        """Encode audio."""
        return self.call(input_values=input_values)


class MaskedAudio(Named):
    """A model of raw audio of different lengths."""

    def forward(self, input_values: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Encode audio."""
        return self.call(input_values=input_values, attention_mask=attention_mask)


class TextAndImage(Named):
    """A model that reads text and images."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor
    ) -> tuple[Tensor, ...]:
        """Compare or join text and images."""
        return self.call(
            input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values
        )


class Series(Named):
    """A model of time series."""

    def forward(self, past_values: Tensor) -> tuple[Tensor, ...]:
        """Encode or continue series."""
        return self.call(past_values=past_values)
