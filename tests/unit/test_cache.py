"""A stored record speaks only for what it was made from."""

from __future__ import annotations

from pathlib import Path

from exporter.cache import why_stale
from exporter.fingerprint import file_digest, fingerprint, tool_versions
from exporter.manifest import Expectation
from exporter.record import CellId, Record, Source, Status
from tests.unit.test_plan import manifest, spec

PARTS = {"entry": "1", "devices": "2", "tools": "3"}


def stored(*sources: Source) -> Record:
    cell = CellId(model="net", opset=17, device="cpu")
    return Record(cell=cell, status=Status.PASS, fingerprint=PARTS, sources=sources)


def test_an_unchanged_record_holds(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("x = 1\n")
    source = Source(file="net.py", sha256=file_digest(tmp_path / "net.py"))
    assert why_stale(stored(source), PARTS, tmp_path) == ""


def test_each_changed_part_is_named(tmp_path: Path) -> None:
    reasons = {
        part: why_stale(stored(), PARTS | {part: "other"}, tmp_path)
        for part in ("entry", "devices", "tools")
    }
    assert reasons == {
        "entry": "its manifest entry changed",
        "devices": "the definition of its devices changed",
        "tools": "the tools changed",
    }


def test_a_changed_or_vanished_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("x = 1\n")
    record = stored(Source(file="net.py", sha256=file_digest(file)))
    file.write_text("x = 2\n")
    assert why_stale(record, PARTS, tmp_path) == "net.py changed"
    file.unlink()
    assert why_stale(record, PARTS, tmp_path) == "net.py changed"


def test_a_record_without_fingerprint_never_holds(tmp_path: Path) -> None:
    bare = Record(cell=stored().cell, status=Status.PASS)
    assert why_stale(bare, PARTS, tmp_path)


def test_the_fingerprint_follows_what_is_proved() -> None:
    one = spec()
    before = fingerprint(manifest(one), one)
    for same in (
        spec(description="more words", tags=("a",), line=9),
        spec(expect=(Expectation(reason="r"),), timeout=5.0),
        spec(opsets=(17, 18, 19)),
    ):
        assert fingerprint(manifest(same), same) == before
    for other in (spec(seed=1), spec(mode="train"), spec(init={"width": 2}), spec(id="other")):
        assert fingerprint(manifest(other), other)["entry"] != before["entry"]


def test_versions_are_known_without_an_import() -> None:
    tools = tool_versions()
    assert {"python", "platform", "torch", "onnx", "onnxruntime", "exporter"} <= set(tools)
    assert all(tools.values())
