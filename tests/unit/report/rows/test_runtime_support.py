"""The support of a model contains only proved facts."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.manifest import Axis, Device, Manifest, Project
from exporter.manifest.resolved.call import SizeRule
from exporter.records.record import CheckResult, Record, Status
from exporter.report.pages.markdown import render_pages
from exporter.report.rows.cells import Row, collect_cells
from exporter.report.rows.matrix import build_support_rows
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec
from tests.unit.report.rendering import Page

TOOLS = {"onnxruntime": "1.31.1", "openvino": "missing", "onnx": "1.23.2"}


def proved(opset: int, sizes: str = "batch 2 to 7", status: str = "pass", **fields: Any) -> Record:
    """Return a record with tested sizes of its axes; the errors of those that fail are large."""
    figures = {"proved": sizes, "max_abs": 3e-7 * opset if status == "pass" else 1.0}
    check = CheckResult(check="axes", status=Status.PASS, metrics=figures)
    artifact = fields.pop("artifact", {"ir_version": 8})
    return make_record(
        f"net/{opset}/{fields.pop('device', 'cpu')}",
        status,
        checks=(check,) if sizes else (),
        artifact=make_artifact("net", opset, **artifact),
    )


def rows(*records: Record, tools: dict[str, str] = TOOLS, **fields: Any) -> tuple[Row, ...]:
    spec = make_spec("net", **{"opsets": (12, 17, 18), **fields})
    names = ("cpu", "cuda", "reference", "openvino", "other")
    runtimes = ("onnxruntime", "onnxruntime", "reference", "openvino", "backend")
    devices = tuple(
        Device(name=name, runtime=runtime, module="own.backend")
        for name, runtime in zip(names, runtimes, strict=True)
    )
    manifest = Manifest(project=Project(root="/project", devices=devices), models=(spec,))
    cells = collect_cells(manifest, make_run(*records))["net"]
    return build_support_rows(spec, cells, manifest, tools)


def test_opsets_releases_and_sizes_in_a_row() -> None:
    (row,) = rows(
        proved(12, artifact={"ir_version": 7}), proved(17), proved(18, artifact={"ir_version": 10})
    )
    assert row == {
        "devices": ("cpu",),
        "opsets": "12, 17..18",
        "loads": "1.3 and later (opset 12); 1.18 and later",
        "proved_with": "ONNX Runtime 1.31.1, 1 thread",
        "axes": ("batch 1 and up, proved 2 to 7",),
    }


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASS])
def test_only_passing_cells_count(status: Status) -> None:
    (row,) = rows(proved(17), proved(18, status=status))
    assert (row["opsets"], row["loads"]) == ("17", "1.12 and later")
    (none,) = rows(proved(18, status=status))
    assert (none["opsets"], none["loads"], none["proved_with"], none["axes"]) == ("", "", "", ())


def test_sizes_are_proved_on_every_file() -> None:
    axes = (Axis(name="a", example=3, max=64), Axis(name="ba", example=5, multiple_of=5))
    both = (proved(17, "a 1 to 64, ba 5 to 35"), proved(18, "a 2 to 60, ba 5 to 70"))
    (row,) = rows(*both, axes=axes)
    assert row["axes"] == (
        "a 1 to 64, proved 2 to 60",
        "ba 1 and up, multiples of 5, proved 5 to 35",
    )
    (row,) = rows(both[0], proved(18, ""), axes=axes[:1])
    assert row["axes"] == ("a 1 to 64, proved only at 3",)


def test_derived_axis_has_its_formula() -> None:
    rule = SizeRule(kind="sum", operands=("past", "seq"))
    total = Axis(name="total", example=8, max=64, rule=rule)
    (row,) = rows(proved(17, "total 4 to 24"), axes=(total,))
    assert row["axes"] == ("total = past + seq, 1 to 64, proved 4 to 24",)


def test_axes_of_outputs_are_not_listed() -> None:
    (row,) = rows(proved(17), axes=(Axis(name="found", example=None),))
    assert row["axes"] == ("fixed sizes",)


def test_devices_with_equal_support_share_a_row() -> None:
    devices = ("cpu", "cuda", "reference", "other")
    records = [proved(17, device=device) for device in devices]
    support = rows(*records, devices=devices, opsets=(17,))
    assert [(row["devices"], row["proved_with"]) for row in support] == [
        (("cpu", "cuda"), "ONNX Runtime 1.31.1, 1 thread"),
        (("reference",), "onnx.reference 1.23.2"),
        (("other",), "own.backend"),
    ]
    assert rows(proved(17), tools={})[0]["proved_with"] == ""  # a version is no guess


def test_the_release_of_an_environment_is_the_one_of_its_record() -> None:
    record = proved(17).model_copy(update={"runtime": "onnxruntime 1.17.3, numpy 1.26.4"})
    (row,) = rows(record)
    assert row["proved_with"] == "ONNX Runtime 1.17.3, 1 thread"


def test_a_file_without_a_known_release_is_named() -> None:
    (row,) = rows(proved(17), proved(18, artifact={"ir_version": 99, "opset_imports": {"": 27}}))
    assert row["loads"] == "1.12 and later (opset 17); no known release (opset 18)"
    (row,) = rows(proved(17, artifact={"ir_version": 8, "opset_imports": {"": 17, "own": 1}}))
    assert row["loads"] == "1.12 and later, with kernels of own"


def test_both_pages_show_the_support() -> None:
    manifest = make_manifest(make_spec("net", opsets=(17, 18)))
    run = make_run(proved(17), proved(18, status="fail"), tools=TOOLS)
    files = render_pages(manifest, run)
    expected = [
        "cpu",
        "17",
        "1.12 and later",
        "batch 1 and up, proved 2 to 7",
        "ONNX Runtime 1.31.1, 1 thread",
    ]
    summary = ["net", expected[2], "1.23 kB", "≤ 1e-5", expected[3]]
    assert summary in Page.of(files["COMPATIBILITY.md"]).rows
    assert expected in Page.of(files["models/net.md"]).rows


def test_a_model_without_proof_has_no_summary() -> None:
    manifest = make_manifest(make_spec("net", opsets=(17,)))
    page = render_pages(manifest, make_run(make_record("net/17/cpu", "fail")))["COMPATIBILITY.md"]
    assert "Releases and axes" not in Page.of(page).headings


def test_the_release_of_a_loaded_package_is_the_one_of_its_record() -> None:
    record = proved(17, device="openvino").model_copy(
        update={"packages": {"openvino": "2026.4.1 41877c3a5fdc"}}
    )
    (row,) = rows(record, devices=("openvino",))
    settings = "INFERENCE_PRECISION_HINT=f32, EXECUTION_MODE_HINT=ACCURACY, 1 thread"
    assert row["proved_with"] == f"OpenVINO 2026.4.1, {settings}"
