"""Models that generate: a package that is missing, too old or not tested."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.manifest.resolved.keys import Generate
from exporter.records.record import Stage, Status
from exporter.worker.model import generation
from exporter.worker.model.generation import require_package, wrap_calls
from exporter.worker.model.source_loader import load_model_twice
from exporter.worker.process.failure import Failure
from tests.traps.generators import GENERATORS
from tests.traps.prove import export
from tests.worker.contracts import ROOT, make_contract


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_PACKAGE", "transformers_that_is_missing")
    spec = make_contract("Affine", exporter="transformers", generate=Generate())
    with pytest.raises(Failure) as caught:
        load_model_twice(spec, ROOT)
    assert caught.value.stage is Stage.SOURCE
    assert caught.value.message.endswith(
        "; transformers_that_is_missing is not installed: install 'transformers==5.24.*'"
    )


def test_the_record_depends_on_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generation, "_PACKAGE", "transformers_that_is_missing")
    (record,) = export(GENERATORS[0].spec, tmp_path / "trap")
    assert (record.status, record.stage) == (Status.ERROR, Stage.SOURCE)
    assert "transformers" in record.packages


def test_with_a_release_without_exporters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "old_package").mkdir()
    (tmp_path / "old_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(generation, "_PACKAGE", "old_package")
    monkeypatch.setattr(generation, "version", lambda _: "5.2.0")
    with pytest.raises(Failure) as caught:
        require_package()
    assert caught.value.stage is Stage.SOURCE
    assert caught.value.message.endswith(
        "; old_package 5.2.0 is not tested: install 'transformers==5.24.*'"
    )


@pytest.mark.parametrize(
    ("release", "is_tested"), [("5.23.1", True), ("5.24.0", True), ("5.230.0", False)]
)
def test_an_error_names_a_release_that_is_not_tested(
    monkeypatch: pytest.MonkeyPatch, release: str, *, is_tested: bool
) -> None:
    monkeypatch.setattr(generation, "version", lambda _: release)
    with pytest.raises(Failure) as caught, wrap_calls(Stage.SOURCE):
        torch.missing_call()
    advice = "; transformers 5.230.0 is not tested: install 'transformers==5.24.*'"
    assert caught.value.message == str(caught.value)
    assert caught.value.message.endswith(advice) is not is_tested
    with pytest.raises(Failure) as caught, wrap_calls(Stage.SOURCE), wrap_calls(Stage.SOURCE):
        raise Failure(Stage.SOURCE, "wrong prompt")
    assert caught.value.message == str(caught.value) == f"wrong prompt{'' if is_tested else advice}"
