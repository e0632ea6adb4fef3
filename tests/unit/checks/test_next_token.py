"""The settings of `generate` change the scores of the next token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from exporter.checks.next_token import apply_search
from exporter.manifest.resolved.keys import Search

LOGITS = np.array([[-4.0, 4.0, 1.0, 2.0]])
OUT = -np.inf


@pytest.mark.parametrize(
    ("settings", "text", "mask", "expected"),
    [
        ({}, [0, 1], [1, 1], [-4, 4, 1, 2]),
        ({"repetition_penalty": 2}, [0, 1, 1], [1, 1, 1], [-8, 2, 1, 2]),
        ({"repetition_penalty": 2}, [0, 1, 1], [0, 1, 1], [-4, 2, 1, 2]),  # 0 is padding
        ({"no_repeat_ngram_size": 1}, [1, 3], [1, 1], [-4, OUT, 1, OUT]),
        ({"no_repeat_ngram_size": 2}, [3, 1, 2, 3], [1, 1, 1, 1], [-4, OUT, 1, 2]),
        ({"no_repeat_ngram_size": 3}, [3, 1], [1, 1], [-4, 4, 1, 2]),
        ({"no_repeat_ngram_size": 3}, [3, 1, 2, 3, 1], [1] * 5, [-4, 4, OUT, 2]),
        ({"suppress_tokens": (1, 3)}, [0], [1], [-4, OUT, 1, OUT]),
        ({"begin_suppress_tokens": (1,)}, [0], [1], [-4, OUT, 1, 2]),
        # Those of Whisper's configuration with a smaller vocabulary.
        ({"suppress_tokens": (1, 220), "begin_suppress_tokens": (4,)}, [0], [1], [-4, OUT, 1, 2]),
    ],
)
def test_a_setting_changes_the_scores_of_its_tokens(
    settings: dict[str, Any], text: list[int], mask: list[int], expected: list[float]
) -> None:
    step = {"input_ids": np.array([text]), "attention_mask": np.array([mask])}
    scores = apply_search(Search(**settings), LOGITS, [step])
    assert scores.tolist() == [expected]


def test_tokens_are_suppressed_at_the_begin_only() -> None:
    steps = [{"input_ids": np.array([[0, 3]])}, {"input_ids": np.array([[2]])}]
    search = Search(begin_suppress_tokens=(1,), repetition_penalty=2)
    assert apply_search(search, LOGITS, steps).tolist() == [[-8, 4, 0.5, 1]]


def test_the_text_of_a_whole_is_that_of_its_decoder() -> None:
    step = {"input_ids": np.array([[2, 3]]), "decoder_input_ids": np.array([[0, 1]])}
    search = Search(repetition_penalty=2)
    for mask in ([[1, 0]], [[1, 0, 0]]):
        inputs = {**step, "attention_mask": np.array(mask)}
        assert apply_search(search, LOGITS, [inputs]).tolist() == [[-8, 2, 1, 2]]


def test_the_padding_of_an_encoder_is_none_of_the_text() -> None:
    """The decoder of an encoder-decoder begins with a token that may be the one for padding."""
    step = {"input_ids": np.array([[0, 1]]), "encoder_attention_mask": np.array([[1, 0, 0]])}
    search = Search(repetition_penalty=2, no_repeat_ngram_size=1)
    assert apply_search(search, LOGITS, [step]).tolist() == [[OUT, OUT, 1, 2]]
