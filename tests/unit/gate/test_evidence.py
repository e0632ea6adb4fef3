"""Measurements of other machines are added, shown, required by the gate, and never a proof here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExporterError
from exporter.gate.evidence import (
    Evidence,
    EvidenceFile,
    add_evidence,
    attach_evidence,
    find_evidence_findings,
    find_evidence_path,
    read_evidence,
)
from exporter.gate.verify_report import DeviceVerdict, FolderVerdict, VerifyReport, hash_settings
from exporter.manifest import Device, FindingKind, Manifest
from exporter.manifest.resolved.project import RuntimeEnvironment
from exporter.records.record import CheckResult, RunRecord, Status
from exporter.report.formats import choose_mark
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

NOW = datetime(2026, 11, 23, 3, tzinfo=UTC)
DAY = 24 * 3600.0
CUDA = Device(name="cuda", runtime="onnxruntime")
STRUCTURE = tuple(
    CheckResult(check=name, status=Status.PASS) for name in ("wellformed", "signature")
)
PARITY = CheckResult(check="parity", status=Status.PASS, metrics={"max_abs": 1.2e-6})


def test_the_digest_of_settings_is_that_of_earlier_measurements() -> None:
    """If it changes, every committed measurement of other machines becomes invalid."""
    device = Device(name="own", runtime="openvino", device="GPU", session_options={"A": 1})
    digest = "8b72c9f08551500ee001ebf376f2b939891ac2a0deda03aaac546662adf32076"
    assert hash_settings(device) == digest
    moved = device.model_copy(update={"name": "gpu", "provider_library": "/usr/lib/x.so"})
    assert hash_settings(moved) == digest
    assert hash_settings(device.model_copy(update={"session_options": {"A": 2}})) != digest


def make_project(root: Path, **settings: Any) -> Manifest:
    manifest = make_manifest(
        make_spec("net", opsets=(18,), devices=("cpu", "cuda")), root=str(root)
    )
    return manifest.model_copy(update={"project": manifest.project.model_copy(update=settings)})


def make_results(sha256: str = "a" * 64) -> RunRecord:
    artifact = make_artifact("net", 18, sha256=sha256)
    return make_run(
        make_record("net/18/cpu", artifact=artifact),
        make_record("net/18/cuda", "unavailable", artifact=artifact, message="no CUDA"),
    )


def write_report(
    folder: Path, *changes: dict[str, Any], time: datetime = NOW, **verdict: Any
) -> Path:
    """Write a file of `verify --json` with a verdict for each dictionary of changes."""
    fields = {
        "device": "cuda",
        "status": Status.PASS,
        "checks": (*STRUCTURE, PARITY),
        "runtime": "onnxruntime-gpu 1.31.1",
        "settings": hash_settings(CUDA),
        **verdict,
    }
    item = {"path": "dist/net/18", "model": "net", "opset": 18, "sha256": "a" * 64}
    verdicts = tuple(
        FolderVerdict(**{**item, **each}, verdict=DeviceVerdict(**fields))
        for each in changes or ({},)
    )
    path = folder / "cuda.json"
    path.write_text(VerifyReport(time=time, machine="Linux, A10", verdicts=verdicts).to_json())
    return path


def add(manifest: Manifest, path: Path, run: RunRecord | None = None) -> list[str]:
    added, problems = add_evidence(manifest, run or make_results(), path, NOW)
    return [str(row) for row in added] + list(problems)


def test_a_measurement_is_shown_and_is_no_proof_here(tmp_path: Path) -> None:
    manifest = make_project(tmp_path)
    text = "pass on Linux, A10 with onnxruntime-gpu 1.31.1 on 2026-11-23, largest error 1.2e-06"
    assert add(manifest, write_report(tmp_path)) == [text]
    cpu, cuda = attach_evidence(make_results(), manifest).records
    assert cpu == make_results().records[0]
    assert cuda.message == f"measured elsewhere: {text}; here: no CUDA"
    assert (cuda.status, choose_mark(cuda).word) == (Status.UNAVAILABLE, "elsewhere")


def test_a_measurement_of_an_older_file_is_stale(tmp_path: Path) -> None:
    manifest = make_project(tmp_path, evidence={"cuda": DAY})
    add(manifest, write_report(tmp_path))
    changed = make_results("b" * 64)
    record = attach_evidence(changed, manifest).records[1]
    assert record.message.startswith("the evidence of 2026-11-23 is about another file;")
    assert choose_mark(record).word == "unavailable"
    (finding,) = find_evidence_findings(manifest, manifest, changed, NOW)
    assert finding.after.startswith("stale: is about another file")


def test_a_renamed_model_keeps_the_measurements_of_its_file(tmp_path: Path) -> None:
    add(make_project(tmp_path, evidence={"cuda": DAY}), write_report(tmp_path))
    spec = make_spec("web", opsets=(18,), devices=("cpu", "cuda"), was=("net",))
    renamed = make_manifest(spec, root=str(tmp_path))
    project = renamed.project.model_copy(update={"evidence": {"cuda": DAY}})
    renamed = renamed.model_copy(update={"project": project})
    for sha256, expected in (
        ("a", "measured elsewhere: pass on Linux, A10"),
        ("b", "the evidence"),
    ):
        record = make_record(
            "web/18/cuda", "unavailable", artifact=make_artifact("web", 18, sha256=sha256 * 64)
        )
        (shown,) = attach_evidence(make_run(record), renamed).records
        assert shown.message.startswith(expected)
        findings = tuple(find_evidence_findings(renamed, renamed, make_run(record), NOW))
        assert len(findings) == (sha256[0] == "b")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"device": "cudda"},
            "net/18/cudda: the project has no device cudda; did you mean 'cuda'?",
        ),
        (
            {"settings": "0"},
            "net/18/cuda: the settings of cuda differ from those of the measurement",
        ),
        ({"status": Status.UNAVAILABLE}, "net/18/cuda: proves nothing, the device is unavailable"),
        ({"checks": ()}, "net/18/cuda: has no check parity; write it with `exporter verify PATH"),
        ({"checks": (PARITY,)}, "net/18/cuda: has no check signature; write it with `exporter"),
        (
            {"checks": (CheckResult(check="files", status=Status.PASS),)},
            "net/18/cuda: has no check parity; write it",
        ),
        (
            {"checks": (CheckResult(check="values", status=Status.FAIL),)},
            "net/18/cuda: the status pass contradicts the check values",
        ),
        ({"time": NOW + timedelta(days=1)}, "net/18/cuda: is from the future, 2026-11-24"),
    ],
)
def test_a_useless_verdict_is_refused(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    manifest = make_project(tmp_path)
    (message,) = add(manifest, write_report(tmp_path, **fields))
    assert message.startswith(problem)
    assert not find_evidence_path(manifest.project).exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"sha256": "b" * 64},
            "net/18/cuda: is about another file",
        ),
        ({"opset": 19}, "net/19/cuda: no manifest contains the cell"),
        ({"model": "", "opset": None}, "dist/net/18: has no model"),
    ],
)
def test_other_verdicts_of_the_file_are_added(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    row, message = add(make_project(tmp_path), write_report(tmp_path, change, {}))
    assert row.startswith("pass on Linux, A10")
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("requirement", "runtime", "is_allowed"),
    [
        ("onnxruntime-gpu==1.31.*", "onnxruntime-gpu 1.31.1, numpy 2.4.6", True),
        ("onnxruntime-gpu~=1.31.0", "onnxruntime-gpu 1.31.1", True),
        ("onnxruntime-gpu==1.17.*", "onnxruntime-gpu 1.31.1", False),
        ("onnxruntime-gpu~=1.30.0", "onnxruntime-gpu 1.31.1", False),
        ("onnxruntime==1.31.*", "onnxruntime-gpu 1.31.1", False),
    ],
)
def test_the_packages_of_a_measurement_are_those_that_the_device_requires(
    requirement: str, runtime: str, is_allowed: bool, tmp_path: Path
) -> None:
    environment = RuntimeEnvironment(
        name="pinned", requirements=("numpy", requirement), location="pyproject.toml:9"
    )
    device = CUDA.model_copy(update={"environment": environment})
    manifest = make_project(tmp_path)
    add(manifest, write_report(tmp_path, runtime=runtime))
    pinned = make_project(tmp_path, devices=(device,))
    (message,) = add(pinned, write_report(tmp_path, runtime=runtime))
    expected = "the evidence is added already" if is_allowed else f"ran with {runtime}, but pyproj"
    assert message.startswith(f"net/18/cuda: {expected}")
    # A row that was added earlier is stale.
    shown = attach_evidence(make_results(), pinned).records[1].message
    assert shown.startswith("measured elsewhere") is is_allowed


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_impossible_year_is_refused_where_it_is_read(time: str, tmp_path: Path) -> None:
    manifest = make_project(tmp_path)
    path = write_report(tmp_path)
    report = VerifyReport.read(path.read_bytes())
    path.write_text(report.model_copy(update={"time": datetime.fromisoformat(time)}).to_json())
    with pytest.raises(ExporterError, match=r"time: Input should be .* 2"):
        add(manifest, path)
    row = read_report_row(manifest, tmp_path)
    stored = EvidenceFile(rows=(row.model_copy(update={"time": datetime.fromisoformat(time)}),))
    find_evidence_path(manifest.project).write_text(stored.to_json())
    with pytest.raises(ExporterError, match=r"rows.0.time: .*; restore it from git"):
        read_evidence(manifest)


def read_report_row(manifest: Manifest, folder: Path) -> Evidence:
    add(manifest, write_report(folder))
    (row,) = read_evidence(manifest).values()
    return row


def test_one_verdict_for_each_cell_is_stored(tmp_path: Path) -> None:
    manifest = make_project(tmp_path)
    assert "contains it twice" in add(manifest, write_report(tmp_path, {}, {}))[1]
    assert "is added already" in add(manifest, write_report(tmp_path))[0]
    older = write_report(tmp_path, time=NOW - timedelta(days=2))
    assert "is older than that of 2026-11-23" in add(manifest, older)[0]
    newer = write_report(
        tmp_path, time=NOW + timedelta(minutes=1), status=Status.FAIL, message="NaN"
    )
    assert add(manifest, newer)[0].startswith("fail on Linux, A10")
    assert len(read_evidence(manifest)) == 1


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    manifest = make_project(tmp_path)
    path = write_report(tmp_path, status=Status.FAIL)
    path.write_text(path.read_text().replace('"fail"', '"pass"'))
    with pytest.raises(ExporterError, match="changed since it was written; write it again with"):
        add(manifest, path)
    add(manifest, write_report(tmp_path))
    stored = find_evidence_path(manifest.project)
    stored.write_text(stored.read_text().replace("1.2e-6", "1.2e-9").replace("1.2e-06", "1.2e-9"))
    with pytest.raises(ExporterError, match="changed since it was written; restore it from git"):
        read_evidence(manifest)


@pytest.mark.parametrize(
    ("age", "fields", "after"),
    [
        ({}, None, None),
        ({"cuda": 30 * DAY}, None, "none"),
        ({"cuda": 30 * DAY}, {"time": NOW - timedelta(days=29)}, None),
        ({"cuda": 30 * DAY}, {"time": NOW - timedelta(days=45)}, "45 days old"),
        ({}, {"time": NOW - timedelta(days=45)}, None),
        ({}, {"status": Status.FAIL, "message": "NaN"}, "fail on Linux, A10 with onnxruntime-gpu"),
    ],
)
def test_the_gate_requires_evidence(
    tmp_path: Path, age: dict[str, float], fields: dict[str, Any] | None, after: str | None
) -> None:
    manifest = make_project(tmp_path, evidence=age)
    if fields is not None:
        add(manifest, write_report(tmp_path, **fields))
    findings = list(find_evidence_findings(manifest, manifest, make_results(), NOW))
    assert [each.kind for each in findings] == ([FindingKind.EVIDENCE] if after else [])
    assert after is None or findings[0].after.startswith(after)


def test_a_proof_on_this_machine_needs_no_evidence(tmp_path: Path) -> None:
    manifest = make_project(tmp_path, evidence={"cuda": DAY})
    run = make_run(make_record("net/18/cpu"), make_record("net/18/cuda"))
    assert not list(find_evidence_findings(manifest, manifest, run, NOW))


def test_a_branch_cannot_remove_the_rule(tmp_path: Path) -> None:
    branch, main = make_project(tmp_path), make_project(tmp_path, evidence={"cuda": 30 * DAY})
    missing, relaxed = find_evidence_findings(branch, main, make_results(), NOW)
    assert missing.after == "none"
    assert relaxed.kind is FindingKind.RELAXED
    assert (relaxed.before, relaxed.after) == (
        "evidence.cuda = 30 days",
        "evidence.cuda = not required",
    )


def test_without_a_file_nothing_changes() -> None:
    run = make_results()
    assert attach_evidence(run, make_project(Path("/nowhere"))) is run


def test_the_name_of_a_machine_has_a_limit(tmp_path: Path) -> None:
    path = write_report(tmp_path)
    report = VerifyReport.read(path.read_bytes())
    path.write_text(report.model_copy(update={"machine": "x" * 3_000_000}).to_json())
    with pytest.raises(ExporterError, match="machine") as caught:
        add_evidence(make_project(tmp_path), make_results(), path, NOW)
    assert len(str(caught.value)) < 1000
