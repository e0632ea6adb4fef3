"""The few calls of the package transformers that `generate` needs, with a tiny model of torch."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from itertools import compress
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

#: The name of the cache among arguments and results: "past_key_values" before release 5.24.
CACHE = "cache"


class GenerationConfig:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Layer:
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values


class StateLayer:
    """States that each token replaces, as in Mamba; one of each in a dict, as in the package."""

    def __init__(self, rows: int) -> None:
        self.conv_states = {0: torch.zeros(rows, 16, 3)}
        self.recurrent_states = {0: torch.zeros(rows, 16, 4)}


class Cache:
    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers


class Config(SimpleNamespace):
    def get_text_config(self) -> Config:
        return self


class PreTrainedModel(nn.Module):
    """A decoder with 64 tokens and positions, and two layers of two heads of size 8."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.config = Config(
            is_encoder_decoder=False, vocab_size=64, max_position_embeddings=64, pad_token_id=0
        )
        self.generation_config = GenerationConfig()
        self.tokens, self.positions = nn.Embedding(64, 16), nn.Embedding(64, 16)
        self.parts = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.dummy_inputs = {"input_ids": torch.arange(15).reshape(3, 5) % 7}

    def can_generate(self) -> bool:
        return True

    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **states: Cache,
    ) -> dict[str, Any]:
        assert {*states} - {"use_cache"} <= {CACHE}
        vectors = self.tokens(input_ids) if inputs_embeds is None else inputs_embeds
        hidden, layers = vectors + self.positions(position_ids), list[Layer]()
        for index in range(len(self.parts)):
            past = states[CACHE].layers[index] if CACHE in states else None
            result, layer = self.run_attention(index, hidden, past, attention_mask)
            hidden, layers = hidden + result, [*layers, layer]
        return {"logits": hidden @ self.tokens.weight.T, CACHE: Cache(layers)}

    def run_greedily(
        self,
        input_ids: Tensor,
        steps: int,
        attention_mask: Tensor | None = None,
        **pictures: Tensor,
    ) -> tuple[list[dict[str, Any]], list[Tensor]]:
        calls: list[dict[str, Any]] = []
        logits: list[Tensor] = []
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        ids, texts, cache = input_ids, input_ids, None
        for _ in range(steps):
            positions = (mask.cumsum(-1) - 1).clamp(0)[:, -ids.shape[1] :]
            calls.append({"input_ids": ids, "position_ids": positions})
            calls[-1] |= {} if mask.all() else {"attention_mask": mask}
            calls[-1] |= {CACHE: cache} if cache else {}
            returned = self(**copy.deepcopy(calls[-1]), **({} if cache else pictures))
            cache, mask = returned[CACHE], nn.functional.pad(mask, (0, 1), value=1)
            logits.append(returned["logits"][:, -1])
            ids = self.choose_tokens(logits[-1], texts, mask[:, :-1], is_first=len(logits) == 1)
            texts = torch.cat([texts, ids], 1)
        return calls, logits

    def run_attention(
        self, index: int, hidden: Tensor, past: Layer | None, mask: Tensor | None
    ) -> tuple[Tensor, Layer]:
        query, keys, values = (
            each.unflatten(-1, (2, 8)).transpose(1, 2)
            for each in self.parts[index](hidden).chunk(3, -1)
        )
        if past:
            keys, values = torch.cat([past.keys, keys], 2), torch.cat([past.values, values], 2)
        shape = (query.shape[2], keys.shape[2])
        allowed = torch.ones(shape, dtype=torch.bool).tril(keys.shape[2] - query.shape[2])
        if mask is not None:
            allowed = mask if mask.ndim == 4 else allowed & mask[:, None, None].bool()
        scores = (query @ keys.mT).masked_fill(~allowed, -1e9).softmax(-1) @ values
        return scores.transpose(1, 2).flatten(2), Layer(keys, values)

    def choose_tokens(
        self, logits: Tensor, texts: Tensor, mask: Tensor, *, is_first: bool
    ) -> Tensor:
        """Return the next tokens; the package writes each setting in another way than the loop."""
        settings, scores = vars(self.generation_config), logits.clone()
        penalty = settings.get("repetition_penalty")
        size = settings.get("no_repeat_ngram_size") or 0
        for row, text, is_text in zip(scores, texts.tolist(), mask.tolist(), strict=True):
            for token in {*compress(text, is_text)} if penalty else ():
                row[token] = row[token] * penalty if row[token] < 0 else row[token] / penalty
            for end in range(size, len(text) + 1) if size else ():
                part = text[end - size : end]
                if part[:-1] == text[len(text) - size + 1 :]:
                    row[part[-1]] = -torch.inf
        names = ["suppress_tokens", *(["begin_suppress_tokens"] if is_first else [])]
        for name in names:
            known = [each for each in settings.get(name) or [] if each < scores.shape[1]]
            scores[:, known] = -torch.inf
        return scores.argmax(-1, keepdim=True)

    def generate(
        self, input_ids: Tensor, max_new_tokens: int, attention_mask: Tensor, **others: Any
    ) -> SimpleNamespace:
        assert attention_mask.shape == input_ids.shape
        names = ("pixel_values", "image_sizes", "token_type_ids")
        pictures = {name: each for name, each in others.items() if name in names}
        calls, logits = self.run_greedily(input_ids, max_new_tokens + 1, attention_mask, **pictures)
        tokens = [call["input_ids"] for call in calls]
        return SimpleNamespace(logits=logits[:-1], sequences=torch.cat(tokens, 1))


class Hybrid(PreTrainedModel):
    """Two layers with states around one of attention; the calls change states in place.

    `kind`: A mistake of a call with states: `stale`, `shifted`, or a start that is not zeros.
    """

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(2, 16, 3))

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **states: Cache,
    ) -> dict[str, Any]:
        rows = len(input_ids)
        layers = states[CACHE].layers if states else [StateLayer(rows), None, StateLayer(rows)]
        if self.kind == "start" and not states:
            layers[0].recurrent_states[0] += 1
        hidden = self.tokens(input_ids)
        if position_ids is not None:
            hidden = hidden + self.positions(position_ids)
        for index in (0, 2):
            parts = [
                self.add_token(index, layers[index], each, is_single=bool(states))
                for each in hidden.split(1, 1)
            ]
            hidden = hidden + torch.cat(parts, 1)
            if index == 0:
                result, layers[1] = self.run_attention(0, hidden, layers[1], attention_mask)
                hidden = hidden + result
        return {"logits": hidden @ self.tokens.weight.T, CACHE: Cache(layers)}

    def add_token(
        self, index: int, layer: StateLayer, hidden: Tensor, *, is_single: bool
    ) -> Tensor:
        conv, recurrent = layer.conv_states[0], layer.recurrent_states[0]
        parts = [conv[..., 1:], hidden.mT]
        if self.kind == "shifted" and is_single:
            parts = [hidden.mT, conv[..., :-1]]
        shifted = torch.cat(parts, -1)
        mixed = (shifted * self.kernel[index // 2]).sum(-1, keepdim=True)
        following = recurrent * 0.5 + mixed * torch.arange(1, 5) / 4
        if not (self.kind == "stale" and is_single):
            conv.copy_(shifted)
            recurrent.copy_(following)
        return following.sum(-1)[:, None].tanh()


class PictureModel(PreTrainedModel):
    """Reads pictures of 3 x 4 x 4, each of which has the place of two tokens 63."""

    def __init__(self) -> None:
        super().__init__()
        self.config.image_token_id = 63
        self.config.vision_config = SimpleNamespace(num_channels=3, image_size=4)
        self.vision, self.multi_modal_projector = nn.Linear(24, 16), nn.Linear(16, 16)

    def get_encoder(self, modality: str) -> nn.Module:
        assert modality == "image"
        return self.vision

    def get_input_embeddings(self) -> nn.Module:
        return self.tokens

    def get_image_features(self, pixel_values: Tensor) -> SimpleNamespace:
        states = self.vision(pixel_values.reshape(-1, 2, 24)).tanh()
        return SimpleNamespace(pooler_output=[*self.multi_modal_projector(states)])

    def forward(
        self, input_ids: Tensor | None = None, pixel_values: Tensor | None = None, **call: Any
    ) -> dict[str, Any]:
        sizes = {name: call.pop(name) for name in ("image_sizes",) if name in call}
        if input_ids is not None:
            vectors = self.tokens(input_ids)
            is_picture = (input_ids == 63)[..., None]
            if pixel_values is not None:
                returned = self.get_image_features(pixel_values, **sizes)
                features = torch.cat(returned.pooler_output)
                assert is_picture.sum() == len(features)
                vectors = vectors.masked_scatter(is_picture, features)
            call["inputs_embeds"] = vectors
        return super().forward(**call)


class KindsModel(PictureModel):
    """Attends to all tokens of kind 1, the pictures, in both directions, as Gemma 3 does."""

    @staticmethod
    def create_masks_for_generate(
        config: Config,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        token_type_ids: Tensor,
        **states: Cache | None,
    ) -> Tensor:
        total = token_type_ids.shape[1]
        length, is_picture = inputs_embeds.shape[1], token_type_ids == 1
        later = is_picture[:, None, total - length :, None] & is_picture[:, None, None]
        mask = torch.ones(length, total, dtype=torch.bool).tril(total - length) | later
        return mask if attention_mask is None else mask & attention_mask[:, None, None].bool()

    def forward(self, token_type_ids: Tensor | None = None, **call: Any) -> dict[str, Any]:
        if token_type_ids is not None:
            ids = call["input_ids"]
            mask = call.pop("attention_mask", None)
            call["attention_mask"] = self.create_masks_for_generate(
                self.config, self.tokens(ids), mask, call["position_ids"], token_type_ids
            )
        return super().forward(**call)


class TalkativeModel(PictureModel):
    """Generates the token of a picture."""

    def forward(self, **call: Any) -> dict[str, Any]:
        returned = super().forward(**call)
        returned["logits"] = returned["logits"] + 100 * nn.functional.one_hot(torch.tensor(63), 64)
        return returned


class SizesModel(PictureModel):
    """Cuts features by sizes in Python, which torch.export does not capture."""

    def get_image_features(self, pixel_values: Tensor, image_sizes: Tensor) -> SimpleNamespace:
        features = super().get_image_features(pixel_values).pooler_output
        heights = image_sizes[:, 0].tolist()
        pairs = zip(features, heights, strict=True)
        cut = [each if height > 2 else each[:1] for each, height in pairs]
        return SimpleNamespace(pooler_output=cut)

    def forward(self, image_sizes: Tensor | None = None, **call: Any) -> dict[str, Any]:
        sizes = {} if image_sizes is None else {"image_sizes": image_sizes}
        return super().forward(**call, **sizes)


class BaseModelOutput(SimpleNamespace):
    """The states of an encoder, from the module `modeling_outputs`."""


class EncoderDecoderCache:
    """The two caches of a decoder with an encoder, from the module `cache_utils`."""

    def __init__(self, self_attention_cache: Cache, cross_attention_cache: Cache) -> None:
        self.self_attention_cache = self_attention_cache
        self.cross_attention_cache = cross_attention_cache


class ModelOutput(dict[str, Any]):
    @property
    def logits(self) -> Tensor:
        return self["logits"]


class PairModel(PreTrainedModel):
    """An encoder and a decoder, whose two layers attend to its states.

    `kind`: A mistake of the model: `deaf` ignores the encoder, `short` ignores its later tokens.
    """

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.config.is_encoder_decoder, self.config.hidden_size = True, 16
        self.generation_config.decoder_start_token_id = 0
        self.encoder = nn.Linear(16, 16)
        self.crosses = nn.ModuleList(nn.Linear(16, 32) for _ in range(2))

    def forward(
        self,
        decoder_input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        use_cache: bool = True,
        return_dict: bool = True,
        **states: EncoderDecoderCache,
    ) -> dict[str, Any]:
        assert decoder_input_ids is not None
        assert use_cache
        assert return_dict
        cache = states.get(CACHE)
        if cache is None:
            encoded = encoder_outputs.last_hidden_state if encoder_outputs else None
            hidden = self.encode(input_ids, attention_mask) if encoded is None else encoded
            cache = EncoderDecoderCache(Cache([]), Cache([*map(self.split, self.read(hidden))]))
        own = cache.self_attention_cache.layers
        past = own[0].keys.shape[2] if own else 0
        length = decoder_input_ids.shape[1]
        positions = torch.arange(past, past + length)
        hidden, layers = self.tokens(decoder_input_ids) + self.positions(positions), list[Layer]()
        for index, cross in enumerate(cache.cross_attention_cache.layers):
            result, layer = self.run_attention(index, hidden, own[index] if own else None, None)
            hidden, layers = hidden + result, [*layers, layer]
            scores = hidden.unflatten(-1, (2, 8)).transpose(1, 2) @ cross.keys.mT
            if attention_mask is not None:
                scores = scores.masked_fill(attention_mask[:, None, None] == 0, -1e9)
            result = (scores.softmax(-1) @ cross.values).transpose(1, 2).flatten(2)
            hidden = hidden + 3 * result * (self.kind != "deaf")
        cache = EncoderDecoderCache(Cache(layers), cache.cross_attention_cache)
        return ModelOutput({"logits": hidden @ self.tokens.weight.T, CACHE: cache})

    def encode(self, input_ids: Tensor | None, mask: Tensor | None) -> Tensor:
        assert input_ids is not None
        mask = torch.ones_like(input_ids) if mask is None else mask
        if self.kind == "short":
            mask = mask * (torch.arange(mask.shape[1]) < 6)
        states = self.tokens(input_ids)
        mean = (states * mask[..., None]).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
        return self.encoder(states + mean).tanh()

    def read(self, states: Tensor) -> list[Tensor]:
        return [each(states) for each in self.crosses]

    @staticmethod
    def split(both: Tensor) -> Layer:
        keys, values = both.unflatten(-1, (2, 16)).transpose(1, 2).chunk(2, -1)
        return Layer(keys, values)

    def run_greedily(
        self,
        input_ids: Tensor,
        steps: int,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> tuple[list[dict[str, Any]], list[Tensor]]:
        encoded = BaseModelOutput(last_hidden_state=self.encode(input_ids, attention_mask))
        ids = decoder_input_ids
        ids = input_ids.new_zeros(len(input_ids), 1) if ids is None else ids
        calls, logits, states = list[dict[str, Any]](), list[Tensor](), dict[str, Any]()
        for _ in range(steps):
            common = {"encoder_outputs": encoded, "use_cache": True, "return_dict": True}
            calls.append({"decoder_input_ids": ids, "attention_mask": attention_mask} | common)
            calls[-1] |= states
            returned = self(**copy.deepcopy(calls[-1]))
            states = {CACHE: returned[CACHE]}
            logits.append(returned["logits"][:, -1])
            ids = logits[-1].argmax(-1, keepdim=True)
        return calls, logits

    def generate(
        self,
        input_ids: Tensor,
        max_new_tokens: int,
        attention_mask: Tensor,
        decoder_input_ids: Tensor | None = None,
        **_: Any,
    ) -> SimpleNamespace:
        calls, logits = self.run_greedily(
            input_ids, max_new_tokens + 1, attention_mask, decoder_input_ids
        )
        tokens = [call["decoder_input_ids"] for call in calls]
        return SimpleNamespace(logits=logits[:-1], sequences=torch.cat(tokens, 1))


# The functions of the module `exporters.utils`.
def get_leaf_tensors(value: Any, path: str = "") -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {path: value}
    if isinstance(value, bool):
        return {}
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


def is_multimodal(model: PreTrainedModel) -> bool:
    return isinstance(model, PictureModel)


def apply_patches(backend: str) -> AbstractContextManager[None]:
    assert backend == "dynamo"
    return nullcontext()


def decompose_for_generation(
    model: PreTrainedModel, prompt: dict[str, Any], multi_token_decode: bool = False
) -> dict[str, Any]:
    calls, _ = model.run_greedily(**prompt, steps=3)
    if multi_token_decode:
        for name in ("input_ids", "position_ids"):
            calls[1][name] = torch.cat([calls[1][name], calls[2][name]], 1)
        calls[1] |= {k: v for k, v in calls[2].items() if k == "attention_mask"}
    return {"prefill": (model, calls[0]), "decode": (model, calls[1])}


decompose_prefill_decode = decompose_for_generation


def prepare_for_export(module: Any, call: dict[str, Any]) -> tuple[Any, dict[str, Any], dict]:
    return module, call, {}
