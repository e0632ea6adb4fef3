"""Only unchanged files are up to date."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.records.record import Artifact
from tests.unit.factory import make_artifact

CONTENT = b"a model"
WEIGHTS = b"its weights"
DATA = f"weights-{hashlib.sha256(WEIGHTS).hexdigest()[:16]}.data"


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "18.onnx").write_bytes(CONTENT)
    (folder / DATA).write_bytes(WEIGHTS)
    return make_artifact(
        "net", 18, sha256=hashlib.sha256(CONTENT).hexdigest(), external_data=(DATA,)
    )


@pytest.mark.parametrize("name", ["18.onnx", DATA])
def test_every_change_of_a_file_is_found(tmp_path: Path, artifact: Artifact, name: str) -> None:
    def find_problem() -> str:
        return ArtifactVerifier(tmp_path).find_problem(artifact)

    path = tmp_path / "net" / name
    content = path.read_bytes()
    for at in range(len(content)):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            path.write_bytes(changed)
            assert "is not the file that was proved" in find_problem()
    path.unlink()
    assert find_problem() == f"net/{name} is missing"
    path.mkdir()
    assert find_problem() == f"net/{name} is missing"
    path.rmdir()
    (tmp_path / "elsewhere").write_bytes(content)
    path.symlink_to(tmp_path / "elsewhere")
    assert find_problem() == f"net/{name} is missing"


def test_a_change_with_a_restored_mtime_is_found(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "exporter.cache.artifact_integrity._CLOCK_RESOLUTION", -1
    )  # new files are stamped at once
    first = ArtifactVerifier(tmp_path)
    assert first.find_problem(artifact) == ""
    first.save()
    path = tmp_path / "net/18.onnx"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"A")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert (
        ArtifactVerifier(tmp_path).find_problem(artifact)
        == "net/18.onnx is not the file that was proved"
    )


def test_an_unchanged_file_is_not_read_again(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cache.artifact_integrity._CLOCK_RESOLUTION", -1)
    first = ArtifactVerifier(tmp_path)
    assert first.find_problem(artifact) == ""
    first.save()

    def reads(path: Path) -> str:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr("exporter.cache.artifact_integrity.hash_source", reads)
    assert ArtifactVerifier(tmp_path).find_problem(artifact) == ""


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"files": {"net/18.onnx": {}}}', b"\xff"])
def test_damaged_stamps_only_cost_time(tmp_path: Path, artifact: Artifact, text: bytes) -> None:
    (tmp_path / "stamps.json").write_bytes(text)
    assert ArtifactVerifier(tmp_path).find_problem(artifact) == ""


def test_a_fresh_file_gets_no_stamp(tmp_path: Path, artifact: Artifact) -> None:
    intact = ArtifactVerifier(tmp_path)
    assert intact.find_problem(artifact) == ""
    intact.save()
    assert not (tmp_path / "stamps.json").exists()
