"""Components of models of transformers: what is missing, and a loop over two exported files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from exporter.jobs import JobFolder
from exporter.manifest import Component
from exporter.plugins import components
from exporter.plugins.components import require_package, select_component, wrap_calls
from exporter.records.record import Stage, Status
from exporter.worker.model.source_loader import load_model_twice
from exporter.worker.process.failure import Failure
from tests.traps.components import COMPONENTS
from tests.traps.prove import export
from tests.worker.contracts import ROOT, make_contract

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="run `nox -s zoo -- --components`"
)
DECODE = Component(name="decode")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "_PACKAGE", "transformers_that_is_missing")
    spec = make_contract("Affine", exporter="transformers", component=DECODE)
    with pytest.raises(Failure) as caught:
        load_model_twice(spec, ROOT)
    assert caught.value.stage is Stage.SOURCE
    assert caught.value.message.endswith(
        "the package is not installed; install 'transformers==5.23.*'"
    )


def test_the_record_depends_on_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(components, "_PACKAGE", "transformers_that_is_missing")
    (record,) = export(COMPONENTS[0].spec, tmp_path / "trap")
    assert (record.status, record.stage) == (Status.ERROR, Stage.SOURCE)
    assert "transformers" in record.packages


def test_with_a_release_without_exporters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "old_package").mkdir()
    (tmp_path / "old_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(components, "_PACKAGE", "old_package")
    monkeypatch.setattr(components, "version", lambda _: "5.2.0")
    with pytest.raises(Failure) as caught:
        require_package()
    assert caught.value.stage is Stage.SOURCE
    assert caught.value.message.endswith(
        "old_package 5.2.0 has no exporters; install 'transformers==5.23.*'"
    )


@pytest.mark.parametrize(("release", "is_tested"), [("5.23.1", True), ("5.230.0", False)])
def test_an_error_names_a_release_that_is_not_tested(
    monkeypatch: pytest.MonkeyPatch, release: str, *, is_tested: bool
) -> None:
    monkeypatch.setattr(components, "version", lambda _: release)
    with pytest.raises(Failure) as caught, wrap_calls(Stage.SOURCE):
        torch.missing_call()
    advice = "; transformers 5.230.0 is not tested: install 'transformers==5.23.*'"
    assert caught.value.message == str(caught.value)
    assert caught.value.message.endswith(advice) is not is_tested
    with pytest.raises(Failure, match=r"^wrong prompt$"), wrap_calls(Stage.SOURCE):
        raise Failure(Stage.SOURCE, "wrong prompt")


@needs_transformers
def test_transformers_exports_only_its_own_models() -> None:
    spec = make_contract("Affine", exporter="transformers", component=DECODE)
    with pytest.raises(Failure) as caught:
        select_component(torch.nn.ReLU(), spec, DECODE, ROOT)
    assert "is a ReLU, but exporter = 'transformers' needs a transformers.PreTrainedModel" in (
        caught.value.message
    )


@needs_transformers
def test_a_wrong_contract_gets_the_tables_of_the_component(tmp_path: Path) -> None:
    (trap,) = (each for each in COMPONENTS if each.name.endswith("without an input"))
    (record,) = export(trap.spec, tmp_path / "trap")
    assert '{ name = "position_ids", shape = [3, 5], dtype = "int64" },' in record.detail
    cache = 'name = "past_key_values.layers.1.values", shape = [3, 2, 5, 8], dtype = "float32"'
    assert cache in record.detail


def _run(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@needs_transformers
def test_two_files_of_transformers_generate_the_tokens_of_generate(tmp_path: Path) -> None:
    traps = {trap.name.removeprefix("transformers: "): trap for trap in COMPONENTS}
    files = {}
    for name in ("prefill", "decode"):
        (record,) = export(traps[f"{name} of GPT-2"].spec, tmp_path / name)
        assert record.status is Status.PASS
        files[name] = JobFolder(tmp_path / name).model(18)
    from tests.traps.models.components import gpt2  # needs transformers

    torch.manual_seed(0)
    model = gpt2().eval()
    tokens = torch.randint(1, 64, (2, 5))
    with torch.no_grad():
        expected = model.generate(
            tokens, do_sample=False, max_new_tokens=32, eos_token_id=None, use_cache=True
        )
    state = _run(
        files["prefill"],
        {
            "input_ids": tokens.numpy(),
            "position_ids": np.arange(5)[None].repeat(2, 0),
        },
    )
    generated = [state["logits"][:, -1:].argmax(-1)]
    for position in range(5, 36):
        caches = {
            f"input.{name.removeprefix('output.')}": value
            for name, value in state.items()
            if name != "logits"
        }
        positions = np.full((2, 1), position)
        state = _run(
            files["decode"], {"input_ids": generated[-1], "position_ids": positions, **caches}
        )
        generated.append(state["logits"].argmax(-1))
    assert np.array_equal(np.concatenate(generated, 1), expected[:, 5:].numpy())
