"""A red record names an installed release with a known silent fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest.syntax import silent_faults
from exporter.manifest.syntax.silent_faults import SilentFault
from tests.traps.prove import export
from tests.traps.trap import contract


@pytest.mark.parametrize(
    ("opsets", "axes", "is_named"),
    [((17, 18), {}, [False, True]), ((18,), {"max": 30}, [False])],
    ids=["red, TorchScript and dynamo", "green"],
)
def test_a_red_record_names_a_release_with_a_silent_fault(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    opsets: tuple[int, ...],
    axes: dict[str, int],
    is_named: list[bool],
) -> None:
    faults = SilentFault("onnx", ">=1", "writes another x", "99"), SilentFault("onnx", "<1", "", "")
    monkeypatch.setattr(silent_faults, "SILENT_FAULTS", faults)
    spec = contract("branches.py:Long", 18, opsets=opsets)
    (batch,) = (axis.model_copy(update=axes) for axis in spec.axes)
    records = export(spec.model_copy(update={"axes": (batch,)}), tmp_path / "net")
    assert all(record.status.is_red is not bool(axes) for record in records)
    texts = [" ".join(record.advice) for record in records]
    assert ["writes another x without an error" in text for text in texts] == is_named
    assert all(text.count("without an error") == text.count("onnx>=99") for text in texts)
