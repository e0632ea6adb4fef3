"""The tokens of ONNX Runtime GenAI are PyTorch's, and each other token or configuration is red."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest

from exporter.checks.protocol import hash_sample, write_sample
from exporter.commands.publish.published_folder import Publication
from exporter.commands.verify.child import folder_checks
from exporter.commands.verify.client import PublishedFile
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Input, Output, Rollout
from exporter.manifest.resolved.keys import Generate, Search
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import make_reference
from tests.unit.factory import make_record, make_spec

#: The token after each one; 2 ends a text, and 0 is padding.
NEXT = {3: 4, 4: 5, 5: 6, 6: 7, 7: 3, 8: 2, 2: 9, 9: 9}
#: PyTorch gives these tokens the same logit, and selects the first one.
TIE = {6: 7}
SPEC = make_spec(
    "net",
    inputs=(
        Input(name="input_ids", shape=("batch", "length"), dtype="int64", at="args[0]"),
        Input(name="attention_mask", shape=("batch", "total"), dtype="int64", at="args[1]"),
        Input(name="past_key_values.0.key", shape=("batch", 1, "past", 4), at="args[2]"),
    ),
    outputs=(Output(name="logits", shape=("batch", "length", 10)),),
    generate=Generate(steps=4, end=(2,), padding=0),
    rollout=Rollout(steps=4, feeds={"logits": "input_ids"}),
)
CONFIG: dict[str, Any] = {
    "model": {
        "eos_token_id": 2,
        "pad_token_id": 0,
        "decoder": {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_size": 4},
    }
}


def write_folder(
    folder: Path, config: str, axes: Mapping[str, int], *, has_prompt: bool
) -> PublishedFile:
    """Write four steps after (8) and (3, 4), with padding on the left; `axes` are its sizes."""
    texts, steps = [[0, 8], [3, 4]], list[Sample]()
    for index in range(4):
        last = [text[-1] for text in texts]
        logits = np.zeros((2, 1, 10), np.float32)
        for row, token in enumerate(last):
            logits[row, 0, [NEXT[token], TIE.get(NEXT[token], NEXT[token])]] = 5
        ids = np.array([text[-1:] if index else text for text in texts])
        mask = np.array([[token != 0 for token in text] for text in texts], np.int64)
        cache = np.zeros((2, 1, len(texts[0]) - 1, 4), np.float32)
        step = Sample(
            index=index,
            name=f"step {index + 1}",
            kind="rollout",
            axes=dict(axes),
            begins=has_prompt and index == 0,
        )
        stored = JobFolder(folder).locate(step)
        write_sample(stored, [ids, mask, cache], [logits], [])
        steps.append(step.model_copy(update={"sha256": hash_sample(stored)}))
        texts = [[*text, NEXT[token]] for text, token in zip(texts, last, strict=True)]
    reference = make_reference().model_copy(update={"rollout": tuple(steps)})
    JobFolder(folder).reference.write_text(reference.to_json())
    (folder / "genai_config.json").write_text(config)
    return PublishedFile(folder=folder)


class Package(ModuleType):
    """A stand-in for ONNX Runtime GenAI: each token decides the next one."""

    def __init__(self, following: Mapping[int, int], end: int) -> None:
        super().__init__("onnxruntime_genai")
        self.__spec__ = ModuleSpec(self.__name__, None)
        self.following, self.end, self.opened = following, end, list[str]()
        self.Config, self.Model = str, self.opened.append
        self.GeneratorParams = lambda model: self
        self.Generator = lambda model, parameters: self
        self.set_search_options = self.__dict__.update

    set_search_options: Any
    repetition_penalty: float
    do_sample: bool
    is_padded = is_sliding = False

    def append_tokens(self, padded: np.ndarray[Any, Any]) -> None:
        assert not (padded[:, 0] == 0).any(), "padding is on the right"
        self.is_padded = bool((padded == 0).any())
        self.last = [[token for token in row if token not in (0, 2)][-1] for row in padded.tolist()]
        self.left = self.max_length - padded.shape[1]

    def is_done(self) -> bool:
        return self.left == 0 or all(token == self.end for token in self.last)

    def generate_next_token(self) -> None:
        self.left -= 1
        following = {4: 9} if self.is_padded and self.is_sliding else self.following
        self.last = [following.get(token, NEXT[token]) for token in self.last]

    def get_next_tokens(self) -> list[int]:
        return self.last


def check(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str = json.dumps(CONFIG),
    *,
    following: Mapping[int, int] | None = None,
    end: int = 2,
    tokens: float | None = None,
    axes: Mapping[str, int] = MappingProxyType({}),
    has_prompt: bool = True,
    generate: Generate | None = SPEC.generate,
) -> tuple[CheckResult, Package]:
    item = write_folder(folder, config, axes, has_prompt=has_prompt)
    names = [path.relative_to(folder).as_posix() for path in folder.glob("rollout/*/*.pb")]
    publication = Publication(
        model="net",
        opset=17,
        is_green=True,
        sha256="",
        tools={},
        data_sets=(),
        allowed=(),
        records=(make_record("net/17/cpu"),),
        sources={name: name for name in names},
    )
    package = Package(following or {}, end)
    package.is_sliding = bool(axes)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", package)
    monkeypatch.setattr(folder_checks, "version", lambda _: "0.18.0")
    spec = SPEC.model_copy(update={"tokens": tokens, "generate": generate})
    return folder_checks.check_tokens(item, publication, spec), package


def test_equal_tokens_pass_up_to_the_end_of_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = check(tmp_path, monkeypatch)
    # One token of the first row, which ends, and four of the second.
    message = "ONNX Runtime GenAI 0.18.0 selects the 5 tokens of 1 prompt"
    assert (result.status, result.message) == (Status.PASS, message)


@pytest.mark.parametrize(
    ("search", "end"),
    [
        ({"repetition_penalty": 1.0, "num_beams": 1, "top_k": 5}, "of 1 prompt"),
        (
            {"repetition_penalty": 1.2, "do_sample": True},
            "; not with the do_sample = True, repetition_penalty = 1.2 of its `search`",
        ),
    ],
)
def test_settings_of_the_folder_that_the_entry_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: dict[str, object], end: str
) -> None:
    result, package = check(tmp_path, monkeypatch, json.dumps({**CONFIG, "search": search}))
    assert result.status is Status.PASS
    assert result.message.endswith(end)
    assert (package.repetition_penalty, package.do_sample) == (1.0, False)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"repetition_penalty": 1.5}, "selects the 5 tokens of 1 prompt"),
        ({"no_repeat_ngram_size": 3}, "selects the 4 tokens of 1 prompt"),  # no row with padding
        ({"suppress_tokens": (1,)}, "ONNX Runtime GenAI has no suppress_tokens"),
    ],
)
def test_settings_of_the_entry_are_those_of_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: dict[str, object], message: str
) -> None:
    generate = Generate(steps=4, end=(2,), search=Search.model_validate(search))
    result, package = check(tmp_path, monkeypatch, generate=generate)
    assert message in result.message
    if "GenAI has no" in message:
        assert (result.status, package.opened) == (Status.FAIL, [])
    else:
        assert vars(package).items() >= search.items()


def test_a_folder_without_prompts_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, package = check(tmp_path, monkeypatch, has_prompt=False)
    assert (result.status, package.opened) == (Status.FAIL, [])
    assert "has no prompts" in result.message


@pytest.mark.parametrize(
    ("following", "end", "message"),
    [
        ({5: 7, 7: 3}, 2, ""),  # PyTorch selects 6, its logit of 7 is equal; then 7 follows 6
        ({5: 7, 6: 5}, 2, "step 3, row 2: it selects token 5 in place of 7"),
        ({4: 9}, 2, "step 1, row 2: it selects token 9 in place of 5; PyTorch's margin is 5"),
        ({8: 99}, 2, "step 1, row 1: it selects token 99 in place of 2"),
        ({8: 3, 3: 3, 4: 3}, 3, "step 1, row 1: it selects token 3 in place of 2"),
        ({2: 6}, 6, "step 3: the text ends before token 7"),
    ],
)
def test_another_token_is_red_unless_its_logit_is_equal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    following: Mapping[int, int],
    end: int,
    message: str,
) -> None:
    result, _ = check(tmp_path, monkeypatch, following=following, end=end)
    assert result.status is (Status.FAIL if message else Status.PASS), result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("axes", "status", "message"),
    [
        ({"batch": 1, "length": 11}, Status.PASS, "rows of different lengths ran alone"),
        ({"batch": 3, "length": 9}, Status.FAIL, "step 1, row 2: it selects token 9"),
    ],
    ids=["a prompt that leaves the window", "another prompt"],
)
def test_padding_in_a_sliding_window_runs_rows_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    axes: Mapping[str, int],
    status: Status,
    message: str,
) -> None:
    result, _ = check(tmp_path, monkeypatch, axes=axes)
    assert (result.status, message in result.message) == (status, True), result.message


@pytest.mark.parametrize(("tokens", "status"), [(0.8, Status.PASS), (0.9, Status.FAIL)])
def test_a_share_of_the_tokens_counts_each_step_from_pytorch_s_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: float, status: Status
) -> None:
    result, _ = check(tmp_path, monkeypatch, following={4: 9}, tokens=tokens)
    message = "ONNX Runtime GenAI 0.18.0 selects 4 of the 5 tokens of 1 prompt"
    assert (result.status, result.message.partition(";")[0]) == (status, message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"eos_token_id": 2', '"eos_token_id": [5]', "eos_token_id is [5], the entry has [2]"),
        ('"pad_token_id": 0', '"pad_token_id": 2', ""),  # many folders have only a token of the end
        ('"pad_token_id": 0', '"pad_token_id": 4', "pad_token_id is 4, the entry has 0; correct"),
        ('"head_size": 4', '"head_size": 8', "head_size is 8, the entry has 4"),
        ('"num_hidden_layers": 1', '"num_hidden_layers": 2', "num_hidden_layers is 2"),
        ('"decoder"', '"session_options": {"provider_options": []}, "decoder"', ""),
        (
            '"decoder"',
            '"session_options": {"custom_ops_library": "a.so"}, "session_options": {}, "decoder"',
            "custom_ops_library may load code",
        ),
        ('"decoder"', '"session_options": {"x": {"y": 1}}, "decoder"', "x may load code"),
        ('"model"', '"mode"', "is no valid configuration of a decoder: KeyError: 'model'"),
        ("{", "[", "is no valid configuration of a decoder: JSONDecodeError"),
    ],
)
def test_a_configuration_that_does_not_fit_is_red_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    text = json.dumps(CONFIG).replace(old, new, 1)
    result, package = check(tmp_path, monkeypatch, config=text)
    assert result.status is (Status.FAIL if message else Status.PASS), result.message
    assert message in result.message
    assert bool(package.opened) == (not message)
