"""A loop has the tokens of `generate`; a package with the few calls stands for transformers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from exporter.jobs import JobFolder
from exporter.manifest import Component, Rollout
from exporter.records.record import Status
from exporter.worker.model import components
from exporter.worker.model.components import select_component
from exporter.worker.process.failure import Failure
from exporter.worker.reference.rollout import compute_rollout
from tests.traps.components import COMPONENTS, GPT2_LOOP, SWAPPED_LOOP, TOKENS_LOOP
from tests.worker import tiny_transformers
from tests.worker.contracts import ROOT
from tests.worker.tiny_transformers import PreTrainedModel

(SPEC,) = (each.spec for each in COMPONENTS if each.name == "transformers: decode of GPT-2")
CACHE_LOOP = GPT2_LOOP.model_copy(
    update={"feeds": {name: each for name, each in GPT2_LOOP.feeds.items() if name != "logits"}}
)
RED = r"^rollout: step \d selects token .* `generate` selects .*; correct `feeds` and `positions`$"


def roll(folder: Path, loop: Rollout, model: torch.nn.Module | None = None) -> int:
    torch.manual_seed(0)
    spec = SPEC.model_copy(update={"rollout": loop})
    model = model or select_component(PreTrainedModel(), spec, Component(name="decode"), ROOT)
    with torch.no_grad():
        return len(compute_rollout(model, spec, {}, JobFolder(folder)))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiny", "tiny.exporters.utils"):
        monkeypatch.setitem(sys.modules, name, tiny_transformers)
    monkeypatch.setattr(components, "_PACKAGE", "tiny")


def test_a_loop_with_the_tokens_of_generate(tmp_path: Path) -> None:
    assert roll(tmp_path, GPT2_LOOP) == 32


@pytest.mark.parametrize(
    "loop",
    [GPT2_LOOP.model_copy(update={"positions": ()}), SWAPPED_LOOP, TOKENS_LOOP, CACHE_LOOP],
    ids=["without positions", "keys as values", "without a cache", "without tokens"],
)
def test_another_loop_is_red(tmp_path: Path, loop: Rollout) -> None:
    with pytest.raises(Failure, match=RED) as caught:
        roll(tmp_path, loop)
    assert caught.value.status is Status.FAIL


def test_a_model_that_generates_needs_a_component(tmp_path: Path) -> None:
    wrapper = torch.nn.Sequential(PreTrainedModel())
    with pytest.raises(Failure, match="rollout: PreTrainedModel generates, and nothing compares"):
        roll(tmp_path, GPT2_LOOP, wrapper)
