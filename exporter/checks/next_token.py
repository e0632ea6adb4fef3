"""The settings of `generate` that change the next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from exporter.manifest.resolved.keys import DECODER_TOKENS, Search
from exporter.runtimes.session import Array


def apply_search(
    search: Search, logits: Array, steps: Sequence[Mapping[str, Array]], prompt: int = 1
) -> Array:
    """Return the scores of the next token: the logits with the settings of `generate`.

    `logits`: `[rows, vocabulary]`; `steps`: the inputs of the prompt and of each step so far;
    `prompt`: the number of steps with tokens of the prompt.
    """
    if search == Search():
        return logits
    scores = logits.astype(np.float32)  # as `generate` does for all types
    is_pair = DECODER_TOKENS in steps[0]  # then the mask is that of the encoder
    name = DECODER_TOKENS if is_pair else "input_ids"
    texts = np.concatenate([each[name] for each in steps], 1)
    mask = np.ones_like(texts)
    mask = (mask if is_pair else steps[-1].get("attention_mask", mask)) != 0
    penalty, size = np.float32(search.repetition_penalty), search.no_repeat_ngram_size
    for row, text, is_text in zip(scores, texts, mask, strict=True):
        tokens = text[is_text]
        row[tokens] = np.where(row[tokens] < 0, row[tokens] * penalty, row[tokens] / penalty)
        if 0 < size <= len(text):
            parts = np.lib.stride_tricks.sliding_window_view(text, size)
            is_begun = (parts[:, :-1] == text[len(text) - size + 1 :]).all(1)
            row[parts[is_begun, -1]] = -np.inf
    suppressed = [*search.suppress_tokens]
    if len(steps) == prompt:
        suppressed += search.begin_suppress_tokens
    # `generate` ignores tokens that a smaller vocabulary does not have.
    scores[:, [token for token in suppressed if token < scores.shape[1]]] = -np.inf
    return scores
