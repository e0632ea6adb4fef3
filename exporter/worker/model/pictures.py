"""The encoder of pictures and the embedding of a model of transformers, and prompts with pictures.

Transformers exports neither of them. Both modules call the model's own layers, and give one feature
to each token of a picture in the prompt.
"""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

import torch

from exporter.core.text import join_names

#: The arguments with pictures.
PICTURES = ("pixel_values", "image_grid_thw", "image_sizes")
#: The features of pictures, a row for each token of a picture.
FEATURES = "image_features"
#: The argument with the kinds of tokens, of which some are attended to in both directions.
KINDS = "token_type_ids"
#: The names of the layers that make features of an encoder's states.
_PROJECTORS = ("multi_modal_projector", "connector", "embed_vision")
#: The name of the attention in which each patch has the number of its picture.
_ATTENTION = "flash_attention_of_pictures"
OTHER_FEATURES = "`generate` has other features of pictures than the encoder and its projector"
#: A line of the model in the message of torch.export.
_LINE_OF_MODEL = re.compile(r'File "([^"]+)", line (\d+)')
#: The sizes of pictures in patches of the merged size; neighbours differ.
_SIZES = ((2, 2), (1, 2), (2, 3))
#: More features than a side of a picture has.
_LONGEST_SIDE = 2**16
#: The number of tiles of a picture that its model cuts; it ignores those left over.
_TILES = 10
#: The number of axes of pictures by the class of a model, found once.
_RANKS: dict[type, int] = {}


def reads_pictures(model: Any) -> bool:
    """Return whether a model takes pictures as tokens of its prompt."""
    has_token = getattr(model.config, "image_token_id", None) is not None
    return has_token and hasattr(model, "get_image_features")


def find_problem(model: Any) -> str:
    """Return why two pictures have no features here, with the line that fails, or ""."""
    try:
        with torch.no_grad():
            compute_features(model, draw_pictures(model, 2))
    except Exception as error:  # code of the model runs
        return describe_error(error)
    return ""


def describe_error(error: Exception) -> str:
    """Return the last line of the package that an error names, and its message."""
    frames = traceback.extract_tb(error.__traceback__)
    if frames[-1].filename == __file__:
        return str(error)
    places = [(each.filename, each.lineno) for each in frames]
    # torch.export adds the lines of the model to the message.
    places += [(file, int(line)) for file, line in _LINE_OF_MODEL.findall(str(error))]
    of_package = [each for each in places if "/transformers/" in each[0]]
    of_model = [each for each in places if "/torch/" not in each[0] and each[0] != __file__]
    file, line = (of_package or of_model or places)[-1]
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    parts = Path(file).parts
    first = parts.index("transformers") if of_package else -1
    name = "/".join(parts[first:])
    return f"{name}:{line}: {type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def find_encoder_problem(model: Any) -> str:
    """Return why the encoder of pictures is no file, with the line of transformers, or "".

    It has the features of `generate`, and torch captures it with any number of pictures.
    """
    try:
        with torch.no_grad():
            vision, drawn = Vision(model), draw_pictures(model, 2)
            if not has_features(model, vision, drawn):
                return OTHER_FEATURES
            axis = {"pixel_values": {1 if _has_rows(drawn) else 0: torch.export.Dim.AUTO}}
            shapes = {each: axis.get(each, {0: torch.export.Dim.AUTO}) for each in drawn}
            torch.export.export(vision, (), drawn, dynamic_shapes=shapes)
    except Exception as error:  # code of the model runs
        return describe_error(error)
    return ""


def has_features(model: Any, vision: Vision, prompt: Mapping[str, torch.Tensor]) -> bool:
    """Return whether an encoder has the features that `generate` places in a prompt."""
    given = {name: prompt[name] for name in PICTURES if name in prompt}
    actual, expected = vision(**given)[FEATURES], compute_features(model, prompt)
    return actual.shape == expected.shape and torch.allclose(actual, expected, 1e-4, 1e-4)


def count_words(model: Any, tokens: torch.Tensor) -> int:
    """Return the number of tokens `[batch, count]` up to the first that stands for a picture."""
    if not reads_pictures(model):
        return tokens.shape[1]
    is_picture = (tokens == model.config.image_token_id).any(0)
    return int(is_picture.int().argmax()) + 1 if is_picture.any() else tokens.shape[1]


def has_kinds(model: Any) -> bool:
    """Return whether attention depends on kinds of tokens, which are an argument."""
    mask = getattr(model, "create_masks_for_generate", None)
    return mask is not None and all(
        KINDS in inspect.signature(each).parameters for each in (model.forward, mask)
    )


def has_grid(model: Any) -> bool:
    """Return whether the patches of all pictures are one tensor, and their sizes another."""
    return "image_grid_thw" in inspect.signature(model.forward).parameters


class Vision(torch.nn.Module):
    """Returns the features of all pictures, one below the other."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)
        self.run: Callable[..., Any] = _run_model
        self.forwards = list_forwards(model)
        drawn = draw_pictures(model, 1)
        if has_grid(model):
            self.run = _run_patches
        elif _has_rows(drawn):
            self.run = _run_layers
        elif len(drawn) == 1 and not isinstance(_run_model(model, **drawn), torch.Tensor):
            self.run = _run_projector

    def forward(
        self,
        pixel_values: torch.Tensor,
        image_grid_thw: torch.Tensor | None = None,
        image_sizes: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        given = zip(PICTURES, (pixel_values, image_grid_thw, image_sizes), strict=True)
        pictures = {name: each for name, each in given if each is not None}
        with restore_forwards(self.forwards):
            features = self.run(self.model, **pictures)
        if not isinstance(features, torch.Tensor):
            features = torch.cat([*features])
        return {FEATURES: features.reshape(-1, features.shape[-1])}


def list_forwards(model: Any) -> dict[Any, Any]:
    """Return the function of each layer of the encoder.

    The patches of transformers for an export replace that of attention by one which needs pictures
    of one size.
    """
    encoder = model.get_encoder(modality="image")
    return {type(each): type(each).forward for each in encoder.modules()}


@contextmanager
def restore_forwards(forwards: Mapping[Any, Any]) -> Iterator[None]:
    """Give layers their own functions again."""
    patched = {each: vars(each).get("forward") for each in forwards}
    patched = {each: p for each, p in patched.items() if p and p is not forwards[each]}
    for each in patched:
        each.forward = forwards[each]
    try:
        yield
    finally:
        for each, function in patched.items():
            each.forward = function


class Embedding(torch.nn.Module):
    """Returns the vectors of tokens, and at each token of a picture the next feature.

    Tokens after the last feature keep their own vector: a prompt without pictures has one, too.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(
        self, input_ids: torch.Tensor, image_features: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        vectors = self.model.get_input_embeddings()(input_ids)
        is_picture = input_ids == self.model.config.image_token_id
        index = is_picture.flatten().cumsum(0).reshape(input_ids.shape) - 1
        count = image_features.shape[0]
        # One more row, so that the index is valid without features.
        rows = torch.cat([image_features, image_features.new_zeros(1, image_features.shape[1])])
        placed = rows[index.clamp(0, count)].to(vectors.dtype)
        is_filled = (is_picture & (index < count))[..., None]
        return {"inputs_embeds": torch.where(is_filled, placed, vectors)}


def _run_model(model: Any, **pictures: torch.Tensor) -> Any:
    """Return the features in the form of the model: a tensor, or one for each picture."""
    return model.get_image_features(**pictures).pooler_output


def _run_layers(model: Any, pixel_values: torch.Tensor) -> torch.Tensor:
    """Return the features of encoder and projector, without the code between.

    It removes pictures that are zeros, and a file has no size that depends on values.
    """
    encoder = model.get_encoder(modality="image")
    states = encoder(pixel_values.flatten(0, 1), return_dict=True).last_hidden_state
    features: torch.Tensor = _find_projector(model)(states)
    return features


def _has_rows(pictures: Mapping[str, torch.Tensor]) -> bool:
    """Return whether the pictures of a prompt are a row of a batch."""
    return pictures["pixel_values"].ndim == 5 and len(pictures) == 1


def _run_projector(model: Any, pixel_values: torch.Tensor) -> torch.Tensor:
    """Return the features of the projector.

    Code behind it may split them by picture, and a file with this split has a fixed number of them;
    it gets those of one picture.
    """
    outputs: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, __: object, features: torch.Tensor) -> torch.Tensor:
        outputs.append(features)
        return features[:1]

    handle = _find_projector(model).register_forward_hook(keep)
    try:
        _run_model(model, pixel_values=pixel_values)
    finally:
        handle.remove()
    return outputs[0]


def _find_projector(model: Any) -> torch.nn.Module:
    named = model.named_modules()
    projectors = (each for name, each in named if name.rpartition(".")[2] in _PROJECTORS)
    projector: torch.nn.Module | None = next(projectors, None)
    if projector is None:
        raise ValueError(f"no module between encoder and tokens is named {join_names(_PROJECTORS)}")
    return projector


def compute_features(model: Any, prompt: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the features that `generate` places in a prompt."""
    features = _run_model(model, **{name: prompt[name] for name in PICTURES if name in prompt})
    if not isinstance(features, torch.Tensor):
        features = torch.cat([*features])
    return features.reshape(-1, features.shape[-1])


def _run_patches(
    model: Any, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor
) -> torch.Tensor:
    """Return the features of packed patches, with the positions and pictures of all patches.

    The model computes them in loops over the sizes, which torch.export does not capture. Pictures
    have one frame.
    """
    visual = model.get_encoder(modality="image")
    merge = visual.spatial_merge_size
    heights, widths = image_grid_thw[:, 1], image_grid_thw[:, 2]
    ends = (heights * widths).cumsum(0)
    numbers = torch.arange(pixel_values.shape[0], device=pixel_values.device)
    pictures = (numbers[:, None] >= ends[None, :-1]).sum(1)
    starts = ends - heights * widths
    local = numbers - starts[pictures]
    # The patches of a merged feature follow each other.
    block, inner = local // merge**2, local % merge**2
    per_row = (widths // merge)[pictures]
    rows = (block // per_row) * merge + inner // merge
    columns = (block % per_row) * merge + inner % merge
    windows = {}
    if hasattr(visual, "window_size"):
        side = visual.window_size // merge // visual.patch_size
        windows = _order_by_window(pictures, rows, columns, merge, side)
    with _attend_by_picture(visual):
        returned = visual(
            pixel_values,
            grid_thw=image_grid_thw,
            position_ids=torch.stack([rows, columns], 1),
            cu_seqlens=pictures,
            max_seqlen=1,
            **windows,
            return_dict=True,
        )
    features: torch.Tensor = returned.pooler_output
    return features


def _order_by_window(
    pictures: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, merge: int, side: int
) -> dict[str, Any]:
    """Return the order of merged features by their windows, and the window of each patch in it.

    `side`: The number of merged features in a row of a window.
    """
    row, column = (each[:: merge**2] // merge for each in (rows, columns))
    window = pictures[:: merge**2]
    for each in (row // side, column // side):
        window = window * _LONGEST_SIDE + each
    order = torch.argsort(window * side**2 + row % side * side + column % side)
    of_patches = window[order].repeat_interleave(merge**2)
    return {"window_index": order, "cu_window_seqlens": of_patches, "max_window_seqlen": 1}


@contextmanager
def _attend_by_picture(visual: Any) -> Iterator[None]:
    """Give attention the pictures of patches in place of the ends of pictures.

    The form of flash attention takes all patches in one call; others split them by picture, with
    sizes that a file cannot compute.
    """
    package = importlib.import_module("transformers.modeling_utils")
    package.ALL_ATTENTION_FUNCTIONS.register(_ATTENTION, _attend)
    name, config = "_attn_implementation", visual.config
    usual = getattr(config, name)
    setattr(config, name, _ATTENTION)
    try:
        yield
    finally:
        setattr(config, name, usual)


def _attend(
    _: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *__: object,
    cu_seq_lens_q: torch.Tensor,
    scaling: float,
    **___: object,
) -> tuple[torch.Tensor, None]:
    mask = cu_seq_lens_q[:, None] == cu_seq_lens_q[None]
    attend = torch.nn.functional.scaled_dot_product_attention
    values = attend(query, key, value, attn_mask=mask[None, None], scale=scaling)
    return values.transpose(1, 2).contiguous(), None


def draw_pictures(model: Any, count: int) -> dict[str, torch.Tensor]:
    """Return random pictures as arguments of `generate`."""
    kind = type(model)
    # Some models take the pictures of a row, or the tiles of a picture, along a further axis.
    for rank in (4, 5) if kind not in _RANKS else ():
        with suppress(Exception):  # code of the model runs
            _run_model(model, **_draw_pictures(model, 2, rank, torch.ones))
            _RANKS[kind] = rank
            break
    return _draw_pictures(model, count, _RANKS.get(kind, 4), torch.randn)


def _draw_pictures(
    model: Any, count: int, rank: int, draw: Callable[..., torch.Tensor]
) -> dict[str, torch.Tensor]:
    vision = model.config.vision_config
    channels: int = getattr(vision, "num_channels", 0) or getattr(vision, "in_channels", 3)
    if has_grid(model):
        merge = vision.spatial_merge_size
        sizes = [[1, *(merge * each for each in _SIZES[n % len(_SIZES)])] for n in range(count)]
        width = channels * vision.temporal_patch_size * vision.patch_size**2
        patches = draw(sum(map(prod, sizes)), width)
        return {"pixel_values": patches, "image_grid_thw": torch.tensor(sizes)}
    size = vision.image_size
    height, width = (size, size) if isinstance(size, int) else size
    has_sizes = "image_sizes" in inspect.signature(model.get_image_features).parameters
    leading = [count]
    if rank == 5:
        leading = [count, _TILES] if has_sizes else [1, count]
    drawn = {"pixel_values": draw(*leading, channels, height, width)}
    if has_sizes:
        sizes = [[height, width // (1 + n % 2)] for n in range(count)]
        drawn["image_sizes"] = torch.tensor(sizes)
    return drawn


def count_features(model: Any, pictures: Mapping[str, torch.Tensor]) -> list[int]:
    """Return the number of features of each picture."""
    with torch.no_grad():
        features = _run_model(model, **pictures)
    if _has_rows(pictures):
        count = pictures["pixel_values"].shape[1]
        return [sum(map(len, features)) // count] * count
    return [len(each) for each in features]


def draw_prompt(
    model: Any, tokens: torch.Tensor, layout: Sequence[tuple[int, int]]
) -> dict[str, torch.Tensor]:
    """Return a prompt as arguments of `generate`, with padding on the left.

    `layout`: The number of pictures and of words in each row. A picture is behind each of the first
    words. A prompt without pictures has one, too, which no token stands for.
    """
    count = sum(number for number, _ in layout)
    pictures = draw_pictures(model, max(count, 1))
    texts, left = list[list[int]](), iter(count_features(model, pictures))
    for number, words in layout:
        text = list[int]()
        for index, word in enumerate(tokens[torch.randint(len(tokens), (words,))].tolist()):
            text.append(word)
            text += [model.config.image_token_id] * (next(left) if index < number else 0)
        texts.append(text)
    length = max(map(len, texts))
    padding = getattr(model.config.get_text_config(), "pad_token_id", None) or 0
    ids = torch.tensor([[padding] * (length - len(text)) + text for text in texts])
    mask = torch.tensor([[0] * (length - len(text)) + [1] * len(text) for text in texts])
    prompt = {"input_ids": ids, "attention_mask": mask, **pictures}
    if has_kinds(model):
        prompt[KINDS] = (ids == model.config.image_token_id).to(torch.int64)
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        prompt["mm_token_type_ids"] = (ids == model.config.image_token_id).to(torch.int32)
    return prompt


def draw_prompts(model: Any, tokens: torch.Tensor) -> Iterator[dict[str, torch.Tensor]]:
    """Yield prompts with one picture in each row, without one, with two in a row, and mixed.

    A last one is longer than a sliding window.
    """
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    layouts = [[(1, 2), (1, 5)], [(0, 1)], [(2, 4)], [(0, 9), (2, 3), (1, 4)]]
    for layout in (*layouts, *([[(1, window + 3)]] if window else [])):
        yield draw_prompt(model, tokens, layout)


def draw_measured_prompt(
    model: Any, tokens: torch.Tensor, rows: int, words: int, count: int
) -> dict[str, torch.Tensor]:
    """Return a prompt whose length does not depend on the number of pictures, at most three."""
    length = words + sum(count_features(model, draw_pictures(model, 4)))
    return draw_prompt(model, tokens, [(count, count + 1), *[(0, length)] * (rows - 1)])


def describe_axes(model: Any) -> dict[str, dict[str, Any]]:
    """Return the axes of pictures and of their features."""
    if has_grid(model):
        merged = model.config.vision_config.spatial_merge_size**2
        return {
            "patches": {"multiple_of": merged},
            "features": {"of": "patches", "stride": merged},
        }
    return {
        "features": {"product": ["pictures", count_features(model, draw_pictures(model, 1))[0]]}
    }


def name_axis(model: Any, name: str) -> str:
    """Return the axis of a tensor that depends on the number of pictures."""
    if name == FEATURES:
        return "features"
    return "patches" if name == "pixel_values" and has_grid(model) else "pictures"


def choose_integers(model: Any, name: str) -> list[int]:
    """Return the range of the integers of an input, or []: half of all tokens are of pictures."""
    if name == "input_ids":
        low = max(model.config.image_token_id - 1, 0)
        return [low, low + 2]
    if name == KINDS:
        return [0, 2]
    if name == "image_grid_thw":
        merge = model.config.vision_config.spatial_merge_size
        return [merge, 4 * merge + 1]
    return []
